"""Clients of the examples: each sends the last reply's cookies and no others, as Gym's agents do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whole.harness import Connection


class Client:
    """One session's client, on any connection."""

    def __init__(self) -> None:
        self.cookie: str | None = None

    def post(
        self, connection: Connection, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of one request."""
        sent = dict(headers or {})
        if self.cookie is not None:
            sent["cookie"] = self.cookie
        status, got, content = connection.ask("POST", path, body={} if body is None else body, headers=sent)
        line = got.get("set-cookie")
        self.cookie = None if line is None else line.split(";")[0]
        return status, json.loads(content)
