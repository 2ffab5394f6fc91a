"""Sessions of pages, as their browsers speak: one WebSocket, and requests beside it.

The further argument says whose: `shiny`, `marimo` or `streamlit`.
"""

from __future__ import annotations

import asyncio
import html
import json
import random
import re
import string
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
import websockets
from sessions import KEEP, MORE, URL, play_all, see_death

LIMITS = httpx.Limits(max_keepalive_connections=100 if KEEP else 0, max_connections=1000)
TURNS = 6


class Page:
    """A WebSocket, with what comes over it one by one."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def send(self, message: Any) -> None:
        """A frame: bytes as they are, everything else as JSON."""
        await self._socket.send(message if isinstance(message, bytes) else json.dumps(message))

    async def until(self, found: Callable[[Any], Any]) -> Any:
        """The first thing that `found` makes of a frame that is to come."""
        async for frame in self._socket:
            seen = found(frame if isinstance(frame, bytes) else json.loads(frame))
            if seen:
                return seen
        raise ConnectionError(self.closed)

    @property
    def closed(self) -> str:
        """How it has ended."""
        return f"closed with {self._socket.close_code}"

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._socket.close_code is None


@asynccontextmanager
async def page(path: str, **options: Any) -> AsyncIterator[Page]:
    """A page's WebSocket."""
    async with websockets.connect(URL.replace("http", "ws", 1) + path, max_size=None, **options) as socket:
        yield Page(socket)


async def shiny(http: httpx.AsyncClient, number: int) -> None:
    """A sum, changed over the WebSocket and downloaded beside it."""
    number += 1
    async with page("/websocket/") as found:
        session = await found.until(lambda frame: frame.get("config", {}).get("sessionId"))
        shown = {".clientdata_output_total_hidden": False, ".clientdata_output_save_hidden": False}
        await found.send({"method": "init", "data": {"number": number, "add:shiny.action": 0, **shown}})
        link = await found.until(lambda frame: (frame.get("values") or {}).get("save"))
        assert link.startswith(f"session/{session}/"), link
        for turn in range(1, TURNS + 1):
            await found.send({"method": "update", "data": {"add:shiny.action": turn}})
            total = await found.until(lambda frame: (frame.get("values") or {}).get("total"))
            assert int(total) == number * turn, (total, number * turn)
            saved = await http.get(f"{URL}/{link}")
            assert (saved.status_code, saved.text) == (200, total), saved


async def marimo(http: httpx.AsyncClient, number: int) -> None:
    """A number that is set beside the WebSocket, and its double, which comes over it."""
    session, headers = await _marimo_page(http, number)

    async def post(path: str, **body: Any) -> None:
        reply = await http.post(f"{URL}/api/kernel/{path}", json=body, headers=headers)
        assert reply.status_code == 200, (path, reply.status_code, reply.text)

    async with page(f"/ws?{urlencode({'session_id': session})}") as found:
        await found.until(lambda frame: frame["op"] == "kernel-ready")
        element = await found.until(lambda frame: re.search(r"object-id=\\?['\"]([^'\"\\]+)", json.dumps(frame)))
        for turn in range(1, TURNS + 1):
            value = 1000 * (number + 1) + turn
            await post("set_ui_element_value", objectIds=[element[1]], values=[value])
            shown = await found.until(lambda frame: f"double: {2 * value}" in json.dumps(frame) and json.dumps(frame))  # noqa: B023
            file = re.search(r"@file/[\w.-]+", shown)
            assert file is not None
            saved = await http.get(f"{URL}/{file[0]}")
            assert (saved.status_code, saved.text) == (200, str(2 * value)), saved


async def _marimo_page(http: httpx.AsyncClient, number: int) -> tuple[str, dict[str, str]]:
    """A new id, as the page makes it, and the headers of the page's POSTs."""
    letters = string.digits + string.ascii_lowercase
    session = "s_" + letters[number // 36] + letters[number % 36] + "".join(random.choices(letters, k=4))
    index = (await http.get(f"{URL}/")).text
    token = re.search(r'"serverToken": "([^"]+)"|data-token="([^"]+)"', index)
    assert token is not None
    return session, {"Marimo-Session-Id": session, "Marimo-Server-Token": html.unescape(token[1] or token[2])}


async def streamlit(http: httpx.AsyncClient, number: int) -> None:
    """Runs that are counted in the session, and a file that is uploaded beside the WebSocket."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    def read(frame: bytes) -> Any:
        message = ForwardMsg()
        message.ParseFromString(frame)
        return message

    def text(frame: bytes) -> str:
        return str(read(frame))

    def uploader(frame: bytes) -> str:
        message = read(frame)
        return message.delta.new_element.file_uploader.id if message.HasField("delta") else ""

    async with page("/_stcore/stream", subprotocols=["streamlit", "PLACEHOLDER_AUTH_TOKEN"]) as found:
        session, files = "", ""
        xsrf = (await http.get(f"{URL}/_stcore/health")).cookies["_streamlit_xsrf"]
        headers = {"cookie": f"_streamlit_xsrf={xsrf}", "x-xsrftoken": xsrf}

        def opened(frame: bytes) -> bool:
            nonlocal session, files
            session = session or read(frame).new_session.initialize.session_id
            files = files or uploader(frame)
            return bool(session and files)

        await found.send(_rerun(BackMsg))
        await found.until(opened)
        await found.until(lambda frame: read(frame).HasField("script_finished"))
        for turn in range(2 * TURNS):
            ask = BackMsg()
            ask.file_urls_request.request_id = f"r{turn}"
            ask.file_urls_request.file_names.append("f.txt")
            ask.file_urls_request.session_id = session
            await found.send(ask.SerializeToString())
            urls = await found.until(lambda frame: read(frame).file_urls_response.file_urls)
            size = 1000 * (number + 1) + turn
            file = {"f.txt": ("f.txt", b"x" * size)}
            sent = await http.put(URL + urls[0].upload_url, files=file, headers=headers)
            assert sent.status_code == 204, (sent.status_code, sent.text)
            again = _rerun(BackMsg, files, urls[0], size)
            await found.send(again)
            await found.until(lambda frame: f"size: {size}" in text(frame))  # noqa: B023
            button = await found.until(lambda frame: re.search(r"/media/\w+\.\w+", text(frame)))
            saved = await http.get(URL + button[0])
            assert (saved.status_code, len(saved.content)) == (200, size), saved


def _rerun(make: Any, widget: str = "", urls: Any = None, size: int = 0) -> bytes:
    """Have the script run again, with a file in its uploader."""
    message = make()
    message.rerun_script.query_string = ""
    if widget:
        state = message.rerun_script.widget_states.widgets.add()
        state.id = widget
        uploaded = state.file_uploader_state_value.uploaded_file_info.add()
        uploaded.file_id, uploaded.name, uploaded.size = urls.file_id, "f.txt", size
        uploaded.file_urls.CopyFrom(urls)
    found: bytes = message.SerializeToString()
    return found


Ask = Callable[[], Awaitable[str]]


class Open:
    """A page that is open: how it is asked whether its session is still there, and how it connects again."""

    def __init__(self, found: Page, still_there: Ask, again: Ask) -> None:
        self.page = found
        self.still_there = still_there
        self.again = again


@asynccontextmanager
async def open_shiny(http: httpx.AsyncClient, number: int) -> AsyncIterator[Open]:
    """A page of Shiny; it does not connect again."""
    async with page("/websocket/") as found:
        await found.until(lambda frame: frame.get("config", {}).get("sessionId"))
        shown = {".clientdata_output_total_hidden": False, ".clientdata_output_save_hidden": False}
        await found.send({"method": "init", "data": {"number": number, "add:shiny.action": 0, **shown}})
        link = await found.until(lambda frame: (frame.get("values") or {}).get("save"))

        async def download() -> str:
            status = (await http.get(f"{URL}/{link}")).status_code
            return "right" if status == 200 else f"a download gets {status}"

        yield Open(found, download, download)


@asynccontextmanager
async def open_marimo(http: httpx.AsyncClient, number: int) -> AsyncIterator[Open]:
    """A page of marimo; it connects again under its id."""
    session, headers = await _marimo_page(http, number)
    path = f"/ws?{urlencode({'session_id': session})}"
    async with page(path) as found:
        await found.until(lambda frame: frame["op"] == "kernel-ready")
        element = await found.until(lambda frame: re.search(r"object-id=\\?['\"]([^'\"\\]+)", json.dumps(frame)))
        body = {"objectIds": [element[1]], "values": [number]}

        async def post() -> str:
            reply = await http.post(f"{URL}/api/kernel/set_ui_element_value", json=body, headers=headers)
            return "right" if reply.status_code == 200 else f"a POST gets {reply.status_code}"

        async def again() -> str:
            before = await post()
            async with page(path) as back:
                op = await back.until(lambda frame: frame["op"] in ("kernel-ready", "reconnected") and frame["op"])
            kept = "resumed" if op == "reconnected" else "connected again, to a new session"
            return kept if before == "right" else f"{before}; {kept}"

        yield Open(found, post, again)


@asynccontextmanager
async def open_streamlit(http: httpx.AsyncClient, _number: int) -> AsyncIterator[Open]:
    """A page of Streamlit; it connects again and offers its old id."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    def session_of(frame: bytes) -> str:
        message = ForwardMsg()
        message.ParseFromString(frame)
        found: str = message.new_session.initialize.session_id
        return found

    offered = ["streamlit", "PLACEHOLDER_AUTH_TOKEN"]
    async with page("/_stcore/stream", subprotocols=offered) as found:
        await found.send(_rerun(BackMsg))
        session = await found.until(session_of)

        async def upload() -> str:
            xsrf = (await http.get(f"{URL}/_stcore/health")).cookies["_streamlit_xsrf"]
            headers = {"cookie": f"_streamlit_xsrf={xsrf}", "x-xsrftoken": xsrf}
            file = {"f.txt": ("f.txt", b"x")}
            sent = await http.put(f"{URL}/_stcore/upload_file/{session}/f", files=file, headers=headers)
            return "right" if sent.status_code == 204 else f"an upload gets {sent.status_code}"

        async def again() -> str:
            before = await upload()
            async with page("/_stcore/stream", subprotocols=[*offered, session]) as back:
                await back.send(_rerun(BackMsg))
                kept = "resumed" if await back.until(session_of) == session else "connected again, to a new session"
            return kept if before == "right" else f"{before}; {kept}"

        yield Open(found, upload, again)


async def until_closed(session: Open) -> str:
    """How the WebSocket ends, if it does."""
    try:
        async with asyncio.timeout(8):
            await session.page.until(lambda _: False)
    except TimeoutError:
        return "right"
    except (ConnectionError, websockets.ConnectionClosed):
        return session.page.closed
    return session.page.closed


async def back(session: Open) -> str:
    """What the page can do then."""
    return await (session.still_there() if session.page.is_open else session.again())


OPEN = {"shiny": open_shiny, "marimo": open_marimo, "streamlit": open_streamlit}


async def main() -> None:
    """All sessions share one pool of connections for what is beside their WebSockets."""
    play = {"shiny": shiny, "marimo": marimo, "streamlit": streamlit}[MORE[0]]
    async with httpx.AsyncClient(limits=LIMITS, timeout=30) as http:

        async def one(number: int) -> None:
            await play(http, number)

        @asynccontextmanager
        async def opened(number: int) -> AsyncIterator[Open]:
            async with OPEN[MORE[0]](http, number) as session:
                yield session

        await (see_death(opened, until_closed, back) if "death" in MORE else play_all(one))


asyncio.run(main())
