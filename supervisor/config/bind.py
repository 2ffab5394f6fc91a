"""Where a server listens, parsed from the config's one-line forms.

127.0.0.1:8000   [::1]:8000   localhost:8000   :8000 (every IPv4 address)   127.0.0.1:0 (the kernel chooses)
unix:PATH        fd://3 (inherited)            systemd:NAME (socket activation)
"""

from __future__ import annotations

import os
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict

UNIX_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux: sun_path has 108 bytes, the last is NUL (unix(7))."""

FORMS = "HOST:PORT, [IPv6]:PORT, :PORT, unix:PATH, fd://N or systemd:NAME"
WILDCARDS = {"0.0.0.0", "::"}  # noqa: S104 - compared with, not bound

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")
_UNIT_NAME = re.compile(r"[!-9;-~]{1,255}")  # sd_listen_fds_with_names(3): printable ASCII without the colon


class FormError(ValueError):
    """A value is not what it should be; `expected` and `do` are the last parts of the config error."""

    def __init__(self, expected: str, *, do: str = "", found: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.do = do
        self.found = found


class Bind(BaseModel):
    """One address.

    kind `tcp` has host and port (0: the kernel chooses), `unix` an absolute path, `fd` a descriptor, `systemd` a name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["tcp", "unix", "fd", "systemd"]
    host: str = ""
    port: int = 0
    path: str = ""
    fd: int = -1
    name: str = ""

    @classmethod
    def parse(cls, text: str, *, folder: str = ".") -> Bind:
        """Read one of the forms above; a relative Unix path is below `folder`. Raises FormError."""
        if text.startswith("unix:"):
            return cls(kind="unix", path=_unix_path(text.removeprefix("unix:"), folder))
        if text.startswith("fd:"):
            return cls(kind="fd", fd=_descriptor(text.removeprefix("fd:")))
        if text.startswith("systemd:"):
            name = text.removeprefix("systemd:")
            if not _UNIT_NAME.fullmatch(name):
                raise FormError("systemd:NAME with the socket unit's FileDescriptorName=")
            return cls(kind="systemd", name=name)
        host, port = _host_and_port(text)
        return cls(kind="tcp", host=host, port=port)

    def __str__(self) -> str:
        match self.kind:
            case "unix":
                return f"unix:{self.path}"
            case "fd":
                return f"fd://{self.fd}"
            case "systemd":
                return f"systemd:{self.name}"
            case "tcp":
                return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def clashes_with(self, other: Bind) -> bool:
        """Whether both cannot be had at once; two binds with port 0 can."""
        if self.kind != other.kind:
            return False
        if self.kind != "tcp":
            return self == other
        if self.port != other.port or self.port == 0:
            return False
        hosts = {self.host, other.host}
        return len(hosts) == 1 or (bool(hosts & WILDCARDS) and len({":" in host for host in hosts}) == 1)


def _unix_path(path: str, folder: str) -> str:
    if not path or path.endswith("/") or "\0" in path:
        raise FormError(
            "unix:PATH with the path of a socket", do="for an abstract socket use a path in a private folder"
        )
    absolute = os.path.normpath(os.path.join(folder, path))
    size = len(os.fsencode(absolute))
    if size > UNIX_PATH_BYTES:
        raise FormError(
            f"at most {UNIX_PATH_BYTES} bytes, which is Linux's limit for the path of a socket",
            found=f"{absolute} ({size} bytes)",
            do="choose a shorter path",
        )
    return absolute


def _descriptor(text: str) -> int:
    number = re.fullmatch(r"//([0-9]{1,6})", text)
    if number is None or int(number[1]) < 3:
        raise FormError("fd://N with the number of an inherited descriptor, 3 or more")
    return int(number[1])


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port):
        raise FormError(FORMS)
    if int(port) > 65535:
        raise FormError("a port from 0 (the kernel chooses) to 65535")
    if host == "":
        return "0.0.0.0", int(port)  # noqa: S104 - what `:PORT` asks for
    if host.startswith("[") and host.endswith("]"):
        if ":" not in host or not _IPV6.fullmatch(host[1:-1]):
            raise FormError("an IPv6 address between the brackets")
        return host[1:-1], int(port)
    if ":" in host:
        raise FormError(FORMS, do='write an IPv6 address in brackets, and the whole in quotes: "[::1]:8000"')
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise FormError(FORMS)
    return host, int(port)
