"""An app whose lifespan start-up raises."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette


@contextlib.asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    """Fails."""
    raise RuntimeError("the lifespan fails here")
    yield


app = Starlette(lifespan=lifespan)
