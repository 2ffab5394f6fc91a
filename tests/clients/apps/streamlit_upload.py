"""The example of Streamlit, with access lines as other servers have them: Streamlit takes uvicorn's loggers over."""

from __future__ import annotations

import logging
from typing import Any

from examples.upload import app as page

loggers = [logging.getLogger("uvicorn"), logging.getLogger("uvicorn.access")]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The app; the loggers are Streamlit's again after each of its configurations."""
    for logger in loggers:
        if not logger.propagate:
            logger.handlers.clear()
            logger.propagate = True
    await page(scope, receive, send)
