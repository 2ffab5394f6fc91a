"""Writes systemd units: a service for one config, the template for all configs of a folder, sockets for both.

Pure: a plan in, text out. What a line is for stands above it in the unit, since that is where an operator reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

WATCHDOG_SECONDS = 30
FOLDER = "/etc/systemd/system"
SYSTEM_CALLS = "@system-service"


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """What a service unit depends on. Paths are absolute; those of a template may hold specifiers and are `raw`.

    command            the gym-supervise command
    config             the config file
    runtime_directory  below /run, made by systemd; None: the config has a folder elsewhere
    environment_file   None: the config takes nothing from the environment; with a leading `-` it may be missing
    sockets            names of socket units
    writable           what it may write beside its runtime and state folders
    home_is_read       something that it needs is in a home
    tmp_is_shared      something that it needs is in /tmp
    low_port           it binds a port below 1024 by itself
    stop_seconds       TimeoutStopSec; None: systemd's default
    file               the unit's own name, which the socket units refer to; None: a template's
    """

    name: str
    user: str
    command: tuple[str, ...]
    config: str
    runtime_directory: str | None
    state_directory: str
    environment_file: str | None = None
    environment: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    home_is_read: bool = False
    tmp_is_shared: bool = False
    low_port: bool = False
    wait_online: bool = False
    stop_seconds: int | None = None
    raw: bool = False
    file: str | None = None


@dataclass(frozen=True, slots=True)
class SocketPlan:
    """A socket unit: `bind_name` is the NAME of `bind: systemd:NAME`, `service` the unit that it starts."""

    name: str
    bind_name: str
    listen: str
    service: str | None = None
    file: str | None = None


def quote(text: str, *, raw: bool = False) -> str:
    """One word of a unit's line. A % starts a specifier and is doubled unless `raw`."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError(f"{text!r} has control characters, which a unit cannot hold")
    word = text if raw else text.replace("%", "%%")
    if word and not re.search(r"[\s\"'\\;]", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def command_line(words: Iterable[str], *, raw: bool = False) -> str:
    """The words of an ExecStart=, in which a $ starts a variable and is doubled."""
    return " ".join(quote(word, raw=raw).replace("$", "$$") for word in words)


def service(plan: ServicePlan) -> str:
    """The text of a service unit."""
    parts = [_unit(plan), "", _running(plan), "", _folders(plan), "", _hardening(plan), "", _install(plan)]
    return "\n".join(parts) + "\n"


def _file(name: str | None) -> list[str]:
    return [] if name is None else [f"# {FOLDER}/{name}"]


def _unit(plan: ServicePlan) -> str:
    lines = [*_file(plan.file), "[Unit]", f"Description=gym-supervise: {plan.name}", "After=network.target"]
    if plan.wait_online:
        lines += ["Wants=network-online.target", "After=network-online.target"]
    if plan.sockets:
        lines += [f"Requires={' '.join(plan.sockets)}", f"After={' '.join(plan.sockets)}"]
    return "\n".join(lines)


def _running(plan: ServicePlan) -> str:
    lines = [
        "[Service]",
        "# Ready when every server is. `all`, since the supervisor says so, and the main process is its guardian.",
        "Type=notify",
        "NotifyAccess=all",
        f"ExecStart={command_line((*plan.command, 'serve', plan.config), raw=plan.raw)}",
        f"ExecReload={command_line((*plan.command, 'reload', plan.config), raw=plan.raw)}",
        f"User={plan.user}",
    ]
    if plan.environment_file is not None:
        if plan.environment:
            lines.append(f"# For the config: {', '.join(plan.environment)}. Mode 0600; systemd reads it as root.")
        lines.append(f"EnvironmentFile={plan.environment_file}")
    if plan.sockets:
        lines.append(f"Sockets={' '.join(plan.sockets)}")
    lines += [
        "",
        "# The ping is the supervisor's own loop. One that hangs writes its stack into the journal, and all ends.",
        f"WatchdogSec={WATCHDOG_SECONDS}",
        "# 2, the config is wrong, and 3, an app does not boot, do not mend themselves.",
        "Restart=on-failure",
        "RestartSec=1",
        "RestartPreventExitStatus=2 3",
        "",
        "# TERM to the guardian alone; it passes the order on. What is left in the end is killed.",
        "KillMode=mixed",
    ]
    if plan.stop_seconds is None:
        lines.append("# graceful_seconds, boot_seconds and the like may be longer: the supervisor extends these times.")
    else:
        lines += ["# Above the config's graceful_seconds.", f"TimeoutStopSec={plan.stop_seconds}"]
    lines += [
        "# One worker that is killed for its memory is replaced; the default would stop the service.",
        "OOMPolicy=continue",
        "LimitNOFILE=524288",
    ]
    return "\n".join(lines)


def _folders(plan: ServicePlan) -> str:
    lines = [
        "# Sockets of the workers; kept over a restart, so that a crash can be read. For the app: $STATE_DIRECTORY."
    ]
    if plan.runtime_directory is not None:
        lines += [
            f"RuntimeDirectory={quote(plan.runtime_directory, raw=plan.raw)}",
            "RuntimeDirectoryMode=0700",
            "RuntimeDirectoryPreserve=restart",
        ]
    lines += [
        f"StateDirectory={plan.state_directory}",
        "UMask=0077",
        "# Else the end of the user's last unit would take the shared memory of what the user runs by hand.",
        "RemoveIPC=no",
    ]
    return "\n".join(lines)


def _hardening(plan: ServicePlan) -> str:
    capability = "CAP_NET_BIND_SERVICE" if plan.low_port else ""
    home = "read-only" if plan.home_is_read else "yes"
    lines = [
        "# What the app must not do. /dev/shm stays the machine's own, for status and claims. Loosen in a drop-in:",
        "#   it writes elsewhere        ReadWritePaths=/that/folder",
        "#   it needs a GPU             PrivateDevices=no",
        "#   it makes sandboxes         RestrictNamespaces=no and SystemCallFilter= (empty)",
        "#   it calls setuid programs   NoNewPrivileges=no and RestrictSUIDSGID=no",
        "# MemoryDenyWriteExecute= is not set: it breaks JIT compilers. ProcSubset=pid hides /proc/meminfo.",
        "ProtectSystem=strict",
        *([f"ReadWritePaths={' '.join(quote(path) for path in plan.writable)}"] if plan.writable else []),
        f"ProtectHome={home}",
        f"PrivateTmp={'no' if plan.tmp_is_shared else 'yes'}",
        "PrivateDevices=yes",
        "NoNewPrivileges=yes",
        f"CapabilityBoundingSet={capability}",
        f"AmbientCapabilities={capability}",
        "ProtectProc=invisible",
        "ProtectClock=yes",
        "ProtectHostname=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "SystemCallArchitectures=native",
        f"SystemCallFilter={SYSTEM_CALLS}",
        "SystemCallFilter=~@privileged",
        "SystemCallErrorNumber=EPERM",
    ]
    return "\n".join(lines)


def _install(plan: ServicePlan) -> str:
    lines = ["[Install]", "WantedBy=multi-user.target"]
    if plan.sockets:
        lines.append(f"Also={' '.join(plan.sockets)}")
    return "\n".join(lines)


def socket(plan: SocketPlan) -> str:
    """The text of a socket unit. Connections wait in it while the service restarts."""
    lines = [
        *_file(plan.file),
        "[Unit]",
        f"Description=gym-supervise: {plan.name}, socket {plan.bind_name.replace('%', '%%')}",
        "",
        "[Socket]",
        f"ListenStream={plan.listen.replace('%', '%%')}",
        f"# bind: systemd:{plan.bind_name}",
        f"FileDescriptorName={plan.bind_name.replace('%', '%%')}",
        "# As many as the kernel grants (net.core.somaxconn): they wait here while the service restarts.",
        "Backlog=65535",
        *([f"Service={plan.service}"] if plan.service is not None else []),
        "",
        "[Install]",
        "WantedBy=sockets.target",
    ]
    return "\n".join(lines) + "\n"


def template(command: tuple[str, ...], user: str) -> ServicePlan:
    """The service unit for every config in /etc/gym-supervise: %i is the file's name without `.yaml`."""
    return ServicePlan(
        name="%i",
        user=user,
        command=command,
        config="/etc/gym-supervise/%i.yaml",
        runtime_directory="gym-supervise/%i",
        state_directory="gym-supervise/%i",
        environment_file="-/etc/gym-supervise/%i.env",
        raw=True,
    )


def template_socket() -> str:
    """The socket unit beside it, for `bind: systemd:main`."""
    text = socket(SocketPlan("%i", "main", "127.0.0.1:8000"))
    return text.replace("%%i", "%i").replace(
        "ListenStream=",
        "# Another address, in a drop-in: `ListenStream=` and then `ListenStream=ADDRESS`.\nListenStream=",
    )
