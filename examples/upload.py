"""A Streamlit app with an upload.

Needs the `streamlit` package; the page itself is `pages/upload.py`.
"""

from __future__ import annotations

from pathlib import Path

import streamlit

app = streamlit.App(Path(__file__).parent / "pages" / "upload.py")
