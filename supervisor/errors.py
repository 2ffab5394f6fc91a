"""The errors that a user of the command can meet, and the exit status of each.

A message has one shape: what it is about, what was found, what was expected, what to do. Whoever first understands a
failure (a bind that is taken, a segment that does not fit) raises one of these; the command prints it without a
traceback and ends with its exit status. Everything else that is raised is a fault of ours: status 1.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_FINE = 0
EXIT_OTHER = 1
EXIT_USAGE = 2
EXIT_BOOT = 3
EXIT_BIND = 4
EXIT_SHARED_MEMORY = 5
EXIT_NOT_RUNNING = 6


def shape(what: str, found: str = "", expected: str = "", do: str = "") -> str:
    """One message: `what: found F, expected E; D`, without the parts that are empty."""
    facts = ", ".join(
        part for part in (f"found {found}" if found else "", f"expected {expected}" if expected else "") if part
    )
    text = f"{what}: {facts}" if facts else what
    return f"{text}; {do}" if do else text


class SupervisorError(Exception):
    """A failure with a cause that the user can act on.

    Args:
        what: what it is about; alone it is the whole message.
        found: what was there.
        expected: what should have been.
        do: what to do about it.

    """

    exit_code = EXIT_OTHER

    def __init__(self, what: str, *, found: str = "", expected: str = "", do: str = "") -> None:
        super().__init__(shape(what, found, expected, do))


class ConfigError(SupervisorError):
    """The config is wrong. `problems` has every error of the file, each `FILE:LINE: KEY: found ..., expected ...`."""

    exit_code = EXIT_USAGE

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class BootError(SupervisorError):
    """An app failed to boot so often that its server is given up."""

    exit_code = EXIT_BOOT


class BindError(SupervisorError):
    """An address, or the runtime folder, belongs to somebody else."""

    exit_code = EXIT_BIND


class ShmError(SupervisorError):
    """Shared memory cannot be had."""

    exit_code = EXIT_SHARED_MEMORY


class NotRunning(SupervisorError):
    """There is no supervisor, nor what one left behind, where the config says."""

    exit_code = EXIT_NOT_RUNNING
