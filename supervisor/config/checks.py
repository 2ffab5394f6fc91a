"""What concerns several keys at once. Works on the file's plain values, so that an error elsewhere hides nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from supervisor.config import uvicorn_options
from supervisor.config.bind import UNIX_PATH_BYTES, Bind, FormError
from supervisor.config.document import Document, Path
from supervisor.config.errors import SECRET_KEYS, describe, found_at, shape_tail
from supervisor.config.models import MAX_WORKERS, Affinity, Config, ServerConfig
from supervisor.config.paths import NAME, NAME_FORM, SOCKET_SUFFIX


def add_problems(document: Document, folder: str, *, affinity_later: bool = False) -> None:
    """Add every error of this kind to the document's; with `affinity_later` a missing affinity is none."""
    data = document.data if isinstance(document.data, dict) else {}
    named = _mapping(data.get("servers"))
    servers = {name: server for name, server in named.items() if isinstance(server, dict)}
    if isinstance(name := data.get("name"), str) and ("name",) not in document.broken and not NAME.fullmatch(name):
        document.complain(("name",), shape_tail(describe(name), NAME_FORM))
    for name in named:
        if not NAME.fullmatch(name):
            document.complain(("servers", name), shape_tail(f"the name {name!r}", NAME_FORM))
    for name, server in servers.items():
        path: Path = ("servers", name)
        _check_affinity(document, path, server, later=affinity_later)
        if isinstance(server.get("app"), dict) and server.get("factory"):
            text = shape_tail("true", "no factory beside a script", "the script says it to uvicorn itself")
            document.complain((*path, "factory"), text)
        chdir = os.path.normpath(os.path.join(folder, str(server.get("chdir") or "")))
        for key, value in _mapping(server.get("uvicorn")).items():
            if problem := uvicorn_options.problem(key, value, chdir):
                document.complain((*path, "uvicorn", key), problem)
        if problem := uvicorn_options.http2_problem(_mapping(server.get("uvicorn"))):
            document.complain((*path, "uvicorn", "http2"), problem)
    _check_binds(document, servers, folder)
    _check_socket_paths(document, data, servers)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _presets() -> str:
    from server_adapters.registry import PRESETS

    return ", ".join(PRESETS)


def no_affinity(workers: int, proposal: str = "") -> str:
    """What is wrong with several workers and no affinity; `proposal` is what the app looks like."""
    do = (
        f"presets are {_presets()}; a worker does not have its siblings' sessions, "
        "so say `affinity: {preset: none}` only for a server that keeps none"
    )
    return shape_tail("nothing", f"an affinity with a preset, since workers is {workers}", proposal or do)


def _check_affinity(document: Document, path: Path, server: Mapping[str, Any], *, later: bool) -> None:
    from server_adapters.registry import PRESETS, check_options

    here = (*path, "affinity")
    workers, affinity = server.get("workers"), server.get("affinity")
    if affinity is None:
        many = isinstance(workers, int) and not isinstance(workers, bool) and 1 < workers <= MAX_WORKERS
        if workers is not None and many and not later:
            document.complain(here, no_affinity(workers))
        return
    if not isinstance(affinity, dict):
        return
    preset = affinity.get("preset")
    if isinstance(preset, str) and preset not in PRESETS:
        if (*here, "preset") not in document.broken:
            document.complain((*here, "preset"), shape_tail(describe(preset), f"one of {_presets()}"))
        return
    try:
        options = Affinity.model_validate(affinity).options()
    except ValidationError:
        return
    for error in check_options(options):
        place = (*here, *_split(error.key))
        if place not in document.broken:
            hidden = place[-1] in SECRET_KEYS or place in document.from_environment
            shows = document.texts.get(place, "") in error.found
            found = found_at(document, place, None) if hidden and shows else error.found
            document.complain(place, shape_tail(found, error.expected, error.do))


def _split(key: str) -> Iterator[str | int]:
    for part in key.replace("[", ".").replace("]", "").split("."):
        if part:
            yield int(part) if part.isdigit() else part


def _check_binds(document: Document, servers: Mapping[str, Mapping[str, Any]], folder: str) -> None:
    binds: dict[str, Bind] = {}
    for name, server in servers.items():
        text = server.get("bind", str(ServerConfig.model_fields["bind"].default))
        if not isinstance(text, str) or ("servers", name, "bind") in document.broken:
            continue
        if "bind" not in server and isinstance(server.get("app"), dict):
            continue  # the script will say it
        try:
            binds[name] = Bind.parse(text, folder=folder)
        except FormError:
            continue  # the models have said so
    for (first, one), (second, two) in itertools.combinations(binds.items(), 2):
        if one.clashes_with(two):
            path = ("servers", second, "bind")
            found = f"{two}, which cannot be had beside the {one} of server {first}"
            if path not in document.lines:
                found = f"nothing, which means {two}, and that cannot be had beside the {one} of server {first}"
            document.complain(path, shape_tail(found, "an address of its own for each server"))


def _check_socket_paths(document: Document, data: Mapping[str, Any], servers: Mapping[str, Any]) -> None:
    folder = data.get("runtime_dir")
    if not isinstance(folder, str) or ("runtime_dir",) in document.broken or not servers:
        return
    longest = max((name for name in servers if NAME.fullmatch(name)), key=len, default="")
    size = len(os.fsencode(folder)) + 1 + len(longest) + len(SOCKET_SUFFIX)
    if size > UNIX_PATH_BYTES:
        room = UNIX_PATH_BYTES - 1 - len(longest) - len(SOCKET_SUFFIX)
        text = shape_tail(
            f"{folder} ({len(os.fsencode(folder))} bytes)",
            f"at most {room} bytes: Linux's limit for the path of a Unix socket is {UNIX_PATH_BYTES}, "
            f"and {longest}{SOCKET_SUFFIX} goes into the folder",
            "give a shorter runtime_dir",
        )
        document.complain(("runtime_dir",), text)


def warnings(config: Config) -> tuple[str, ...]:
    """What is allowed but probably not meant."""
    found = []
    cookies: dict[tuple[str, str], str] = {}
    for name, server in config.servers.items():
        affinity = server.affinity
        if affinity is not None and affinity.cookie and affinity.secret:
            found += same_cookie(cookies, name, affinity.cookie, affinity.secret)
    return tuple(found)


def same_cookie(seen: dict[tuple[str, str], str], name: str, cookie: str, secret: str) -> list[str]:
    """A warning when a server's cookie and secret are those of one in `seen`, to which it is added."""
    other = seen.setdefault((cookie, secret), name)
    if other == name:
        return []
    text = (
        f"servers.{name}.affinity: the cookie {cookie} and its secret are those of server {other} too; "
        "browsers ignore ports in cookies, so the two overwrite each other's sessions on one host"
    )
    return [text]
