"""The answer to whoever asks whether a worker takes requests: a load balancer, an orchestrator."""

from __future__ import annotations

from supervisor.routing.request import Send


async def answer(send: Send, *, ready: bool) -> None:
    """200 or 503, never cached."""
    body = b"ok\n" if ready else b"not ready\n"
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": 200 if ready else 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
