"""A marimo notebook as an app: a number that the page can change, and its double.

Needs the `marimo` package; the notebook itself is `notebooks/double.py`.
"""

from __future__ import annotations

from pathlib import Path

import marimo

app = marimo.create_asgi_app().with_app(path="/", root=str(Path(__file__).parent / "notebooks" / "double.py")).build()
