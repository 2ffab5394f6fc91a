"""Values in JSON by their path, such as `params.arguments.session_id`: out of a whole text, or out of one that comes in
pieces.

Neither builds what is beside the path: a large body costs a scan and no objects.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import msgspec

Path = tuple[str, ...]
_NULL = msgspec.Raw(b"null")
_NO_VALUES: dict[Path, Any] = {}


def path_of(text: str) -> Path:
    """A path as it is written: names with dots between them."""
    return tuple(text.split("."))


class JsonPaths:
    """Reads values out of a whole JSON object."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._level = _Level(paths)

    def read(self, body: bytes) -> tuple[Any, ...]:
        """The values, in the order of the paths; None for each that is missing, and where the text is no object."""
        found = self._level.read(body)
        if found is None:
            return (None,) * len(self._paths)
        return tuple(found.get(path) for path in self._paths)


@functools.lru_cache(maxsize=256)
def reader_of(path: Path) -> JsonPaths:
    """The reader of one path; to make one costs as much as many readings."""
    return JsonPaths(path)


class _Level:
    """One object: some of its values are wanted whole, others are objects to look into, undecoded until then."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._leaves = {path[0] for path in paths if len(path) == 1}
        below: dict[str, list[Path]] = {}
        for path in paths:
            if len(path) > 1:
                below.setdefault(path[0], []).append(path[1:])
        self._below = {name: _Level(tuple(rest)) for name, rest in below.items()}
        self._names = tuple(self._leaves | set(below))
        fields = {f"f{index}": name for index, name in enumerate(self._names)}
        struct = msgspec.defstruct("Level", [(field, msgspec.Raw, _NULL) for field in fields], rename=fields)
        self._decode = msgspec.json.Decoder(struct).decode

    def read(self, text: bytes | msgspec.Raw) -> dict[Path, Any] | None:
        try:
            values = dict(zip(self._names, msgspec.structs.astuple(self._decode(text)), strict=True))
            found: dict[Path, Any] = {(name,): msgspec.json.decode(values[name]) for name in self._leaves}
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, RecursionError):
            return self._read_loose(bytes(text))
        for name, level in self._below.items():
            for path, value in (level.read(values[name]) or _NO_VALUES).items():
                found[(name, *path)] = value
        return found

    def _read_loose(self, text: bytes) -> dict[Path, Any] | None:
        # Apps read with json.loads, which takes NaN, lone surrogates, a byte order mark and UTF-16 as well.
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return self._pick(content) if isinstance(content, dict) else None

    def _pick(self, content: dict[str, Any]) -> dict[Path, Any]:
        found: dict[Path, Any] = {(name,): content.get(name) for name in self._leaves}
        for name, level in self._below.items():
            inner = content.get(name)
            if isinstance(inner, dict):
                found |= {(name, *path): value for path, value in level._pick(inner).items()}
        return found


_TOKEN = re.compile(rb'[ \t\r\n]*(?:("(?:[^"\\]|\\.)*")|([{}\[\]:,])|([^\s"{}\[\]:,]+))', re.DOTALL)


class JsonScanner:
    """Finds the text at a path of a JSON object that comes in pieces, as soon as its closing quote is there.

    It follows the nesting and nothing else: what is no JSON is told by the app's client, not here.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self._open: list[bytes] = []
        self._along = 0  # how many of the open objects lie on the path, the outermost counted
        self._key: str | None = None
        self._wants_key = False
        self.over = False

    def feed(self, piece: bytes) -> str | None:
        """The text at the path, in the piece that completes it. `over` says that nothing can come any more."""
        text = self._rest + piece
        end = 0
        while (match := _TOKEN.match(text, end)) is not None:
            end = match.end()
            string, mark, _ = match.groups()
            if string is not None:
                found = self._string(string)
                if found is not None:
                    self.over = True
                    return found
            elif mark is not None:
                self._mark(mark)
            if self.over:
                break
        self._rest = text[end:]
        return None

    def _string(self, token: bytes) -> str | None:
        if self._wants_key:
            self._key, self._wants_key = _text(token), False
            return None
        depth = len(self._open)
        if depth == 0:
            self.over = True
        elif self._along == depth == len(self._path) and self._key == self._path[-1] and self._open[-1] == b"{":
            return _text(token)
        return None

    def _mark(self, mark: bytes) -> None:
        depth = len(self._open)
        if mark in b"{[":
            if mark == b"{" and (
                depth == 0 or (self._along == depth < len(self._path) and self._key == self._path[depth - 1])
            ):
                self._along += 1
            self._open.append(mark)
            self._key, self._wants_key = None, mark == b"{"
        elif mark in b"}]":
            del self._open[-1:]
            self._along = min(self._along, len(self._open))
            self._key, self._wants_key = None, False
            self.over = not self._open
        elif mark == b",":
            self._key, self._wants_key = None, bool(self._open) and self._open[-1] == b"{"


def _text(token: bytes) -> str | None:
    try:
        value = json.loads(token)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
