"""Gym's MCP session token: an itsdangerous URL-safe text over `{"sid": ID, "tools": ...}`, without expiry.

Large payloads are compressed; the signature is checked before anything is unpacked.
"""

from __future__ import annotations

from itsdangerous import BadData, URLSafeSerializer

from server_adapters.sessions import BoundedCache, session_id

TOKEN_HEADER = b"x-nemo-gym-session-token"
TOKEN_SALT = "nemo-gym-mcp-session-token"  # noqa: S105 (a salt is no secret)


class SessionTokens:
    """Reads the tokens of one server; what was checked is kept by the header's bytes."""

    def __init__(self, secret: str) -> None:
        self._serializer = URLSafeSerializer(secret, salt=TOKEN_SALT)
        self._known: BoundedCache[tuple[str | None]] = BoundedCache()

    def session(self, token: bytes) -> str | None:
        """The id that a token names under a valid signature, or None. Garbage is no token, and never raises."""
        entry = self._known.get(token)
        if entry is None:
            entry = (self._read(token),)
            self._known.put(token, entry)
        return entry[0]

    def _read(self, token: bytes) -> str | None:
        try:
            payload = self._serializer.loads(token.decode("latin-1"))
        except (BadData, ValueError, RecursionError):
            return None
        return session_id(payload.get("sid")) if isinstance(payload, dict) else None
