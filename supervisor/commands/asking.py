"""Asking a running supervisor over its control socket: one JSON line each way."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.service import Service
from supervisor.commands.running import find
from supervisor.errors import NotRunning, SupervisorError

CONTROL_SOCKET = "control.sock"
REPLY_SECONDS = 5.0
MAX_REPLY_BYTES = 1 << 20


class Unanswered(Exception):
    """There was no answer; the message names the socket and says why."""


def ask(runtime_dir: Path, request: Mapping[str, Any], *, seconds: float | None = REPLY_SECONDS) -> dict[str, Any]:
    """Ask the supervisor of a runtime folder.

    Returns:
        its answer, in which `ok` says whether it was done; an answer without `ok` was not

    Raises:
        Unanswered: no socket, nobody there, no answer within `seconds`, or one that is no JSON object

    """
    path = runtime_dir / CONTROL_SOCKET
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline(MAX_REPLY_BYTES)
        if not line:
            raise Unanswered(f"{path} was closed without an answer")
        reply = json.loads(line)
    except TimeoutError:
        raise Unanswered(f"{path} did not answer within {seconds or 0:.0f} s") from None
    except OSError as error:
        raise Unanswered(f"{path} cannot be used ({error.strerror or error})") from None
    except ValueError:
        raise Unanswered(f"{path} answered with something other than JSON") from None
    if not isinstance(reply, dict):
        raise Unanswered(f"{path} answered with something other than a JSON object")
    return {"ok": False, **reply}


def find_running(config: str) -> Service:
    """The service of a config file, for a command that needs its supervisor to act.

    Raises NotRunning when there is none, and SupervisorError when a signal has stopped it.
    """
    service = find(config)
    pid = service.supervisor_pid
    if service.state == "dead":
        raise NotRunning(
            f"{config}: nothing runs there",
            found=f"what supervisor {pid} left in {service.runtime_dir} when it died",
            do="the next `serve` removes it",
        )
    if service.state == "stopped":
        raise SupervisorError(
            f"{config}: supervisor {pid} cannot act",
            found="that a signal has stopped it",
            do=f"`kill -CONT {pid}` lets it go on",
        )
    return service
