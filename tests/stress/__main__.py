"""`python -m tests.stress`, from the repository's root; `show` says how."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

if __name__ == "__main__":
    from stress.show import main

    sys.exit(main())
