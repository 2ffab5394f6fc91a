"""One plain uvicorn worker around the wire's app: `python -m wire.plain OPTIONS`. Prints its port when it listens."""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn
from wire.app import app


class Server(uvicorn.Server):
    """Says where it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        assert sockets is not None
        print(sockets[0].getsockname()[1], flush=True)


def main() -> None:
    """Serve until a signal."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, **json.loads(sys.argv[1]))
    asyncio.Runner(loop_factory=config.get_loop_factory()).run(Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
