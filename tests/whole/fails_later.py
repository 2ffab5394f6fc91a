"""An app that fails to import while a file exists."""

from __future__ import annotations

import os

from whole.children import app

if os.path.exists(os.environ["FAIL_WHEN"]):
    raise RuntimeError("fails now")

__all__ = ["app"]
