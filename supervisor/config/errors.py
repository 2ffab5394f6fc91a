"""pydantic's errors in this product's words: file, line and key, what was found, what was expected, what to do."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from supervisor.config.bind import FormError
from supervisor.config.document import Document, Path
from supervisor.config.models import Config
from supervisor.errors import shape

SECRET_KEYS = {"secret"}
UNION_TAGS = {"[key]", "[script]", "[reference]"}
"""What pydantic adds to a place, and the models' own tags; none is a key of the file."""

SHOWN = 60
ITEM_TYPES = {"string_type": "a text", "dict_type": "a mapping", "list_type": "a list"}


def describe(value: object) -> str:
    """A value as an error shows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(str, value))}" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]}...{text[0]}"


def found_at(document: Document, path: Path, value: object) -> str:
    """The value at a key, as written; never a secret's, nor an environment variable's."""
    if path and path[-1] in SECRET_KEYS:
        return "a value that is not shown here"
    if path in document.from_environment:
        return f"{document.written[path]} with a value that is not shown here"
    return describe(value)


def key(path: Path) -> str:
    """A path as a dotted key: `servers.counter.env.A`, `servers.counter.affinity.session_starts[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def add_validation_problems(document: Document, error: ValidationError) -> None:
    """Add pydantic's errors to the document's."""
    for detail in error.errors(include_url=False):
        path = _path_of(detail["loc"])
        if any(path[: len(broken)] == broken for broken in document.broken if broken):
            continue
        document.complain(path, _text(document, path, detail))


def _path_of(location: tuple[int | str, ...]) -> Path:
    return tuple(part for part in location if part not in UNION_TAGS)


def _text(document: Document, path: Path, detail: Any) -> str:
    found = found_at(document, path, detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            return unknown_key(path, model_at(path[:-1]))
        case "missing":
            return shape_tail("nothing", expected_at(path))
        case "value_error" if isinstance(reason := detail["ctx"]["error"], FormError):
            return shape_tail(reason.found or found, reason.expected, reason.do)
    return shape_tail(found, expected_at(path) or ITEM_TYPES.get(detail["type"], detail["msg"]))


def shape_tail(found: str, expected: str, do: str = "") -> str:
    """The part of a message after the key."""
    return shape("", found, expected, do).removeprefix(": ")


def unknown_key(path: Path, model: type[BaseModel] | None) -> str:
    """For a key that is none of the model's: what it may have meant, or where it belongs."""
    name = str(path[-1])
    names = list(model.model_fields) if model else []
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    close = close or [each for each in names if each.startswith(f"{name}_")]  # the unit was forgotten
    if close:
        return shape_tail("an unknown key", f"one of {', '.join(names)}", f"did you mean {close[0]}?")
    homes = [home for home, fields in _homes(Config, "") if name in fields]
    do = f"it belongs under {homes[0]}" if homes else ""
    return shape_tail("an unknown key", f"one of {', '.join(names)}", do)


def _homes(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, set[str]]]:
    yield prefix or "the top level", set(model.model_fields)
    for name, info in model.model_fields.items():
        inner, many = _inner(info)
        if inner is not None:
            yield from _homes(inner, ".".join(filter(None, (prefix, name, "NAME" if many else ""))))


def _inner(info: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """The model inside a field's type, and whether the field maps names to it."""
    annotation = info.annotation
    many = typing.get_origin(annotation) is dict
    joined = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    for option in typing.get_args(annotation) if many or joined else (annotation,):
        if typing.get_origin(option) is typing.Annotated:
            option = typing.get_args(option)[0]  # noqa: PLW2901 - a tagged part of a union
        if isinstance(option, type) and issubclass(option, BaseModel) and option.__name__ != "Bind":
            return option, many
    return None, many


def _field_at(path: Path) -> FieldInfo | None:
    model: type[BaseModel] | None = Config
    info: FieldInfo | None = None
    parts = list(path)
    while parts and model is not None:
        part = parts.pop(0)
        found = model.model_fields.get(str(part))
        if found is None:
            return None
        info = found
        model, many = _inner(info)
        if many and parts:
            parts.pop(0)
            if not parts:
                return None
    return info


def model_at(path: Path) -> type[BaseModel] | None:
    """The model that a mapping at this key is read with."""
    if not path:
        return Config
    if len(path) == 2 and path[0] == "servers":
        return _inner(Config.model_fields["servers"])[0]
    info = _field_at(path)
    return _inner(info)[0] if info else None


def expected_at(path: Path) -> str:
    """What a key takes, in its field's words."""
    if not path:
        return f"a mapping with {', '.join(Config.model_fields)}"
    if len(path) == 2 and path[0] == "servers":
        return "a mapping with at least app"
    info = _field_at(path)
    if info is None:
        return ""
    if len(path) > 1 and isinstance(path[-1], int):
        return f"an item of {info.description}"
    return info.description or ""
