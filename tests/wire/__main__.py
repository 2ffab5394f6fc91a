"""`python -m tests.wire [WORD ...]`, from the repository's root."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

if __name__ == "__main__":
    from wire.show import main

    sys.exit(main())
