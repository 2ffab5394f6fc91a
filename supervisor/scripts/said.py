"""What a script says to uvicorn, in this product's words: its address, its number of workers, its options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.config import Bind, ScriptApp, ServerConfig
from supervisor.config.bind import FormError
from supervisor.config.models import MAX_WORKERS
from supervisor.config.uvicorn_options import REFUSED
from supervisor.errors import shape
from supervisor.scripts.calls import RELOADING, Call
from supervisor.scripts.main_module import script_traceback

OF_THE_SERVER = frozenset({"app", "factory", "host", "port", "uds", "fd", "workers", "env_file", *RELOADING})
"""Options that have been dealt with when uvicorn is given the others. `env_file` is read by Config's constructor."""

DOES: Mapping[str, str] = {
    "limit_max_requests": "leave it out, or say `recycle: {max_requests: N}` in a config",
    "limit_max_requests_jitter": "leave it out",
}

IN_THREAD = (
    "uvicorn is called in a thread: a worker serves in its main thread; call it there, and start a thread for the rest"
)
TWICE = "uvicorn is called a second time: a worker serves one app; run the other one as a server of its own"
OWN_SOCKETS = "the script gives uvicorn sockets of its own, which its workers cannot share; give host and port, or uds"


class UnusableCall(Exception):
    """A call that cannot be served. The message says why and what to do."""


@dataclass(frozen=True)
class Said:
    """What the supervisor has to know of a call before there is a worker."""

    bind: Bind
    workers: int


def said(call: Call, server: ServerConfig) -> Said:
    """Address and workers, for a server that may have been given its own. Raises UnusableCall."""
    if problems := list(_problems(call)):
        raise UnusableCall("; ".join(problems))
    text = _bind_text(call)
    try:
        bind = Bind.parse(text, folder=os.getcwd())
    except FormError as error:
        raise UnusableCall(shape("the address that it gives to uvicorn", text, error.expected, error.do)) from None
    workers = call.config.workers
    if "workers" in server.open_to_script and not 1 <= workers <= MAX_WORKERS:
        do = "say another number, here or there"
        raise UnusableCall(shape("its number of workers", str(workers), f"1 to {MAX_WORKERS}", do))
    return Said(bind, workers)


def uvicorn_options(call: Call) -> dict[str, Any]:
    """What the script wants of uvicorn.Config, and is left to it."""
    return {key: value for key, value in call.options.items() if key not in OF_THE_SERVER}


def _problems(call: Call) -> Iterator[str]:
    if call.own_sockets:
        yield OWN_SOCKETS
    for key, do in DOES.items():
        if call.options.get(key):
            yield f"found {key}={call.options[key]!r}, which is refused: {REFUSED[key]}; {do}"


def _bind_text(call: Call) -> str:
    """As uvicorn chooses between them."""
    config = call.config
    if config.fd is not None:
        return f"fd://{config.fd}"
    if config.uds:
        return f"unix:{config.uds}"
    host = config.host or ""
    return f"[{host}]:{config.port}" if ":" in host else f"{host}:{config.port}"


def exit_text(script: ScriptApp, error: SystemExit) -> str:
    """What to say of a script that has called sys.exit before it called uvicorn."""
    text = (
        f"{script}: it has called sys.exit({'' if error.code is None else repr(error.code)}) before it called uvicorn"
    )
    if not error.code:  # --help, say
        return text
    return f"{text}\n{script_traceback(error, chain=False)}"  # argparse has printed its own error


def no_call_text(script: ScriptApp) -> str:
    """What to say of a script that has never called uvicorn."""
    return f"{script}: it has come to its end without a call of uvicorn.run or Server.serve; is it behind a condition?"
