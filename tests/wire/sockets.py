"""The WebSocket routes of the wire's app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wire.app import Ask

KEYS = ("http_version", "scheme", "path", "raw_path", "query_string", "root_path", "headers", "subprotocols")
COOKIES = [(b"set-cookie", b"a=1"), (b"x-odd", b"\xe9"), (b"set-cookie", b"b=2")]


async def socket(ask: Ask) -> None:
    """By its route."""
    name, _, argument = ask.scope["path"].removeprefix(ask.scope["root_path"])[1:].partition("/")
    try:
        await ROUTES[name](ask, argument)
    except OSError:
        ask.note("send raised an OSError")
        raise


async def accept(ask: Ask, **more: Any) -> None:
    await ask.receive()
    await ask.send({"type": "websocket.accept", **more})


async def say(ask: Ask, data: str | bytes) -> None:
    await ask.send({"type": "websocket.send", "text" if isinstance(data, str) else "bytes": data})


async def until_left(ask: Ask) -> None:
    """Take what comes; note how it ends."""
    count = 0
    while (message := await ask.receive())["type"] == "websocket.receive":
        count += 1
        ask.at(count)
    ask.note([message["code"], message.get("reason") or ""])


async def echo(ask: Ask, _: str) -> None:
    await accept(ask)
    while (message := await ask.receive())["type"] == "websocket.receive":
        await ask.send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})
    ask.note([message["code"], message.get("reason") or ""])


async def scope(ask: Ask, _: str) -> None:
    await accept(ask)
    client = ask.scope["client"]
    extensions = sorted(name for name in ask.scope["extensions"] if name != "gym_supervise")
    await say(ask, repr([[ask.scope[key] for key in KEYS], extensions, client and client[0]]))
    await until_left(ask)


async def head(ask: Ask, _: str) -> None:
    """Accepts with headers, and the last subprotocol that is offered."""
    await accept(ask, subprotocol=ask.scope["subprotocols"][-1], headers=COOKIES)
    await until_left(ask)


async def close(ask: Ask, argument: str) -> None:
    """Closes with CODE/REASON; without, as it is."""
    await accept(ask)
    code, _, reason = argument.partition("/")
    await ask.send({"type": "websocket.close", **({"code": int(code), "reason": reason} if code else {})})
    message = await ask.receive()
    ask.note([message["type"], message["code"]])


async def refuse(ask: Ask, _: str) -> None:
    await ask.receive()
    await ask.send({"type": "websocket.close", "code": 4000, "reason": "no"})


async def deny(ask: Ask, _: str) -> None:
    await ask.receive()
    await ask.send({"type": "websocket.http.response.start", "status": 418, "headers": COOKIES})
    await ask.send({"type": "websocket.http.response.body", "body": b"tea", "more_body": True})
    await ask.send({"type": "websocket.http.response.body", "body": b"pot" * 100_000})


async def error(ask: Ask, argument: str) -> None:
    if argument == "late":
        await accept(ask)
        await say(ask, "first")
        await ask.receive()
    raise RuntimeError("asked for")


async def ends(ask: Ask, argument: str) -> None:
    """Returns: without an answer, or without a close."""
    if argument == "late":
        await accept(ask)
        await say(ask, "first")
        await ask.receive()


async def wait(ask: Ask, _: str) -> None:
    """Answers only when its client has left."""
    await ask.receive()
    ask.note("waits")
    ask.note((await ask.receive())["code"])


async def many(ask: Ask, argument: str) -> None:
    """COUNT messages without a pause."""
    await accept(ask)
    for number in range(int(argument)):
        await say(ask, str(number) if number % 2 else b"%d" % number)
    await until_left(ask)


async def lump(ask: Ask, argument: str) -> None:
    """A large message of each kind."""
    await accept(ask)
    await say(ask, "ü" * (int(argument) // 2))
    await say(ask, b"\x00\xff" * (int(argument) // 2))
    await until_left(ask)


async def flood(ask: Ask, argument: str) -> None:
    """More than a stalled client takes."""
    await accept(ask)
    for sent in range(0, int(argument), 65536):
        await say(ask, b"z" * 65536)
        ask.at(sent + 65536)
    await ask.send({"type": "websocket.close"})


async def late_read(ask: Ask, _: str) -> None:
    """Takes what comes when it is told to."""
    await accept(ask)
    await ask.gate()
    count = 0
    while (message := await ask.receive()).get("text") != "end":
        count += len(message["bytes"])
    await say(ask, str(count))
    await until_left(ask)


async def wrong(ask: Ask, argument: str) -> None:
    """A message that does not belong there."""
    if argument == "late":
        await accept(ask)
        await ask.send({"type": "websocket.accept"})
    await say(ask, "early")


async def deaf(ask: Ask, _: str) -> None:
    """Sends on and on, and learns from that alone that its client has left."""
    await accept(ask)
    await say(ask, "first")
    await ask.gate()
    while True:
        await say(ask, b"z" * 65536)


ROUTES = {
    function.__name__.replace("_", "-"): function
    for function in (
        echo,
        scope,
        head,
        close,
        refuse,
        deny,
        error,
        ends,
        wait,
        many,
        lump,
        flood,
        late_read,
        wrong,
        deaf,
    )
}
