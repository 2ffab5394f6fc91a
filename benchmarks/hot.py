"""Where a request's time goes, without sockets: `python -m benchmarks.hot [--profile PART]`.

The parts of a request's way that are ours, each run in this process alone: the router around an app that does nothing,
and both sides of a relay, each with the other one's frames ready. Their costs are CPU of a warm process, the least of
many rounds, so that a busy machine does not show; what the same costs in a service, with cold caches and the kernel's
part, is for the suite `relay`. `--profile` shows a part's functions instead, by cProfile.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.clients.raw import request_bytes
from benchmarks.clients.sessions import new_cookie
from benchmarks.servers import COOKIE, SECRET
from server_adapters import registry
from shmclaims import RowState, Segment
from supervisor.config import Config, ServerConfig
from supervisor.processes.worker_spec import WorkerSpec
from supervisor.relay.channel import Channel
from supervisor.relay.client import _open
from supervisor.relay.codec import encode
from supervisor.relay.frames import Head
from supervisor.relay.link import Link
from supervisor.relay.outcomes import Order
from supervisor.relay.peer import Peer
from supervisor.routing import flags
from supervisor.routing.assembly import Routing, assemble
from supervisor.routing.request import request_head

ROUNDS = 60
CALLS = 400
BODY = b'{"count": 1, "text": "' + b"x" * 176 + b'"}'
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"200")],
}
END = {"type": "http.response.body", "body": b"y" * 200}
REQUEST = {"type": "http.request", "body": BODY, "more_body": False}


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    """The smallest server."""
    await send(START)
    await send(END)


async def _receive() -> Any:
    return REQUEST


async def _send(_message: Any) -> None:
    pass


class _NoTransport:
    def write(self, data: bytes) -> None:
        """Forget it."""


class _Owner:
    """The transport of a connection to an owner that answers at the loop's next turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link) -> None:
        self._loop = loop
        self._link = link
        self._reply = encode(Head(200, START["headers"], END["body"]))  # type: ignore[arg-type]

    def write(self, _data: bytes) -> None:
        """Answer."""
        self._loop.call_soon(self._link.data_received, self._reply)


def scope(cookie: str | None) -> dict[str, Any]:
    """What uvicorn makes of the benchmark's request."""
    lines = request_bytes("POST", "/echo", cookie=cookie, body=BODY).partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 41234),
        "scheme": "http",
        "method": "POST" if cookie else "GET",
        "root_path": "",
        "path": "/echo",
        "raw_path": b"/echo",
        "query_string": b"",
        "headers": headers,
        "state": {},
    }


def routing(stack: ExitStack) -> Routing:
    """A worker's routing, of a server with two workers."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    server = ServerConfig.model_validate(
        {
            "app": "benchmarks.hot:app",
            "workers": 2,
            "affinity": {"preset": "gym-resources", "cookie": COOKIE, "secret": SECRET},
            "uvicorn": {"access_log": False},
        }
    )
    config = Config.model_validate({"name": "hot", "runtime_dir": folder, "servers": {"app": server}})
    segment = Segment.create({"server": "app"}, max_sessions=1000)
    stack.callback(segment.close)
    stack.callback(segment.unlink)
    incarnation = segment.ring.register(0, now=time.time())
    segment.table.bind(incarnation, 0)
    segment.ring.set_pid(incarnation, os.getpid())
    segment.ring.set_state(incarnation, RowState.READY)
    spec = WorkerSpec(
        config=config,
        server=server,
        name="app",
        index=0,
        incarnation=incarnation,
        segment=segment,
        listeners=[],
        link=None,  # type: ignore[arg-type]  # routing never touches it
        runtime_dir=str(Path(folder)),
        workers=2,
    )
    assert server.affinity is not None
    return assemble(spec, app, registry.build(server.affinity.options(), app, server="app"))


def claim_elsewhere(made: Routing, session: str) -> int:
    """Have a second worker, which does not exist, own a session; returns its incarnation."""
    segment = made._spec.segment
    other = segment.ring.register(1, now=time.time())
    segment.ring.set_pid(other, os.getpid())
    segment.ring.set_state(other, RowState.READY)
    segment.table.bind(other, 1)
    segment.table.try_claim(session.encode(), now=time.time())
    segment.table.bind(made._spec.incarnation, 0)
    loop = asyncio.get_running_loop()
    peer = Peer(loop, "", os.getuid(), is_live=lambda: True, pid=None)
    link = Link(loop, peer._lost)
    link.transport = _Owner(loop, link)  # type: ignore[assignment]
    peer.give(link)
    assert made._client is not None
    made._client._peers[other] = peer
    return other


async def parts(stack: ExitStack) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What is measured; each call is one request."""
    made = routing(stack)
    tasks: set[Any] = set()
    await made.open({}, tasks)
    bare, named, foreign = scope(None), scope(new_cookie()), scope(new_cookie())
    router = made.router
    reading = made.router._adapter.read(request_head(named))
    assert reading.session is not None
    elsewhere = made.router._adapter.read(request_head(foreign)).session
    assert elsewhere is not None
    claim_elsewhere(made, elsewhere)
    own = await made._claims.take(reading.session)
    made._claims.book.start(own, succeeded=True, now=time.monotonic())
    server = made._server
    assert server is not None
    channel = Channel(server, asyncio.get_running_loop())
    channel._transport = _NoTransport()  # type: ignore[assignment]
    order = Order(server.incarnation, "owned", own.session, flags.pack(reading))
    opened = encode(_open(order, named, named["headers"], BODY, False))

    async def relayed() -> None:
        channel.data_received(opened)
        await asyncio.sleep(0)

    return {
        "the app alone": lambda: app(bare, _receive, _send),
        "a request without a session": lambda: router(bare.copy(), _receive, _send),
        "a local request with a session": lambda: router(named.copy(), _receive, _send),
        "a forwarded request, where it came in": lambda: router(foreign.copy(), _receive, _send),
        "a relayed request, at its owner": relayed,
    }


async def cost(call: Callable[[], Awaitable[Any]]) -> float:
    """CPU microseconds of a call."""
    least = float("inf")
    for _ in range(ROUNDS):
        before = time.thread_time()
        for _ in range(CALLS):
            await call()
        least = min(least, (time.thread_time() - before) / CALLS * 1e6)
    return least


async def main(profiled: str | None) -> None:
    """Print the costs, or one part's profile."""
    with ExitStack() as stack:
        found = await parts(stack)
        if profiled is None:
            for name, call in found.items():
                print(f"{name:<36} {await cost(call):6.2f} us")
            return
        (call,) = (call for name, call in found.items() if profiled in name)
        with cProfile.Profile() as profile:
            for _ in range(ROUNDS * CALLS):
                await call()
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot", description=__doc__)
    parser.add_argument(
        "--profile", metavar="PART", help="a word of the part's name: alone, without, local, forwarded, owner"
    )
    uvloop.run(main(parser.parse_args().profile))
