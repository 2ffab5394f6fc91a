"""Run the benchmarks of this folder, one after the other, each in a process of its own.

    python -m benchmarks [NAME ...]

A benchmark is a module with a `main`. Each prints its table and writes its figures to benchmarks/out/.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks' names, found without importing them."""
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        if not path.stem.startswith("_"):
            body = ast.parse(path.read_text()).body
            if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in body):
                found.append(path.stem)
    return found


def main() -> None:
    """Run those that are named, or all; end with the first one's exit status that is not 0."""
    known = names()
    wanted = sys.argv[1:] or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"found no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    worst = 0
    for name in wanted:
        print(f"== {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=FOLDER.parent, check=False)
        worst = worst or done.returncode
    sys.exit(worst)


if __name__ == "__main__":
    main()
