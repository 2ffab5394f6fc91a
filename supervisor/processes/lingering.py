"""Whether a log-out will take the service's shared memory away.

When the last session of a person ends, logind removes all POSIX shared memory of theirs and $XDG_RUNTIME_DIR
(RemoveIPC= in logind.conf(5), on by default), unless they linger. System users are left alone.
"""

from __future__ import annotations

import pwd
import re
from pathlib import Path

SYSTEM_UID_MAX = 999
"""systemd's own default; login.defs(5) may say otherwise."""


def is_system_user(uid: int, root: Path = Path("/")) -> bool:
    """Whether logind leaves a user's shared memory alone. `root`: where /etc is."""
    try:
        found = re.search(r"^\s*SYS_UID_MAX\s+(\d+)", (root / "etc/login.defs").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return uid <= (int(found[1]) if found else SYSTEM_UID_MAX)


def advice(uid: int, root: Path = Path("/")) -> str | None:
    """What to say when that user starts a service; None: no log-out harms it. `root`: where /etc and the rest are."""
    if is_system_user(uid, root) or not (root / "run/systemd/seats").is_dir():  # logind's folder: no logind, no harm
        return None
    user = _name(uid)
    if (root / "var/lib/systemd/linger" / user).exists() or _kept(root):
        return None
    return (
        f"when {user} logs out, the service's names in /dev/shm go, and all of $XDG_RUNTIME_DIR: sessions on other "
        f"workers cannot be reached any more; `loginctl enable-linger {user}` keeps them"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _kept(root: Path) -> bool:
    """Whether logind.conf says that nothing is removed; the last word counts."""
    files = [root / "etc/systemd/logind.conf", *sorted((root / "etc/systemd/logind.conf.d").glob("*.conf"))]
    last = "yes"
    for file in files:
        try:
            last = (re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", file.read_text(), re.MULTILINE) or [last])[-1]
        except OSError:
            continue
    return last.lower() in ("no", "false", "off", "0")
