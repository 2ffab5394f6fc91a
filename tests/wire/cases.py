"""The wire as a table: what a client sends, directly to the app's worker and through a relay."""

from __future__ import annotations

from wire import cases_http, cases_http2, cases_websocket

CASES = [*cases_http.CASES, *cases_websocket.CASES, *cases_http2.CASES]
