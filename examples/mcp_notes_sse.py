"""The notes of `mcp_notes` over HTTP+SSE, the transport before Streamable HTTP.

GET /sse                              the session's stream; its first event tells where to post
POST /messages/?session_id=...        MCP's JSON-RPC; answers come over the stream
"""

from __future__ import annotations

from examples.mcp_notes import server

app = server.sse_app()
