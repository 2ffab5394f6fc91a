"""The rows of the table: a server, its preset, and the real client that plays sessions on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Row:
    """One server and client.

    name         as the table has it
    environment  of the server and, unless `node`, of the client
    app          module:attribute
    preset       what gym-supervise is told
    player       the client's script in `play/`, with its further arguments
    modes        "close": a connection for each request; "keep": kept alive
    sessions     how many are played, `at_once` at a time
    spread       in these modes every session must be seen on more than one accepting worker; elsewhere a session may
                 have a single connection
    """

    name: str
    environment: str
    app: str
    preset: str
    player: tuple[str, ...]
    modes: tuple[str, ...] = ("close", "keep")
    sessions: int = 50
    spread: tuple[str, ...] = ("close",)
    at_once: int = 50
    options: dict[str, Any] = field(default_factory=dict)
    timeout: float = 180


NOTES = "examples.mcp_notes:app"
FASTMCP = "tests.clients.apps.fastmcp_notes"
GRADIO_SUM = "examples.gradio_sum:app"

MCP = [
    Row("MCP Streamable HTTP, mcp 1", "mcp1", "tests.clients.apps.mcp1:app", "mcp", ("mcp1.py",)),
    Row("MCP Streamable HTTP, mcp 2 legacy", "mcp2", NOTES, "mcp", ("mcp2.py",)),
    Row("MCP, mcp 2 default mode, requestState", "mcp2", NOTES, "mcp", ("mcp2.py", "auto"), spread=()),
    Row("fastmcp, legacy", "mcp2", f"{FASTMCP}:app", "mcp", ("fastmcp_client.py",)),
    Row(
        "fastmcp, SessionProvider",
        "mcp2",
        f"{FASTMCP}:app",
        "mcp",
        ("fastmcp_client.py", "provider"),
    ),
    Row("MCP HTTP+SSE, mcp 1", "mcp1", "tests.clients.apps.mcp1:sse", "mcp-sse", ("mcp1.py", "sse")),
    Row("MCP HTTP+SSE, mcp 2", "mcp2", "examples.mcp_notes_sse:app", "mcp-sse", ("mcp2.py", "sse")),
    Row("MCP HTTP+SSE, fastmcp", "mcp2", f"{FASTMCP}:sse", "mcp-sse", ("fastmcp_client.py", "sse")),
]

SOCKET_IO = [
    Row(
        f"Socket.IO {way}, {language}",
        "apps",
        "examples.chat:app",
        "socketio",
        (player, way),
        spread=("close",) if way == "polling" else (),
    )
    for way in ("polling", "upgrade", "websocket")
    for language, player in (("Python", "socketio_client.py"), ("JavaScript", "socketio_client.mjs"))
]

GRADIO = [
    Row("gradio, gradio_client", "apps", GRADIO_SUM, "gradio", ("gradio_sessions.py", "client"), modes=("close",)),
    # Each of its sessions is two requests, which may well be accepted by one worker.
    Row("gradio, API for curl", "apps", GRADIO_SUM, "gradio", ("gradio_sessions.py", "curl"), spread=()),
]

PAGES = [
    Row("Shiny, with downloads", "apps", "examples.sliders:app", "shiny", ("pages.py", "shiny")),
    Row("marimo", "apps", "examples.notebook:app", "marimo", ("pages.py", "marimo")),
    # Its workers are busy with scripts: of many connections at once, those that are idle accept nearly all.
    Row(
        "Streamlit, with uploads",
        "apps",
        "tests.clients.apps.streamlit_upload:app",
        "streamlit",
        ("pages.py", "streamlit"),
        at_once=8,
    ),
]

CHROMIUM = [
    # A browser keeps its few connections: those of one page may all be one worker's.
    Row(f"{name} in Chromium", "apps", app, preset, ("browser.py", preset), ("keep",), sessions=8, at_once=4, spread=())
    for name, app, preset in (
        ("gradio", GRADIO_SUM, "gradio"),
        ("Shiny, with downloads,", "examples.sliders:app", "shiny"),
        ("marimo, with downloads,", "examples.notebook:app", "marimo"),
        ("Streamlit, with uploads and downloads,", "examples.upload:app", "streamlit"),
    )
]

SESSIONS = [*MCP, *SOCKET_IO, *GRADIO, *PAGES]
ROWS = [*SESSIONS, *CHROMIUM]


SEE_NO_DEATH = ("MCP, mcp 2 default mode, requestState", "fastmcp, SessionProvider", "gradio, API for curl")
"""They have no session that a worker could take with it, or none that outlives one request."""

DEATHS = [replace(row, sessions=20) for row in SESSIONS if row.name not in SEE_NO_DEATH]
