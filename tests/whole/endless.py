"""An app whose lifespan start-up never ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from starlette.applications import Starlette


@contextlib.asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    """Waits."""
    logging.getLogger("endless").warning("starting for ever")
    await asyncio.Event().wait()
    yield


app = Starlette(lifespan=lifespan)
