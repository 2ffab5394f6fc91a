"""What the commands that talk to a running service have in common: finding it, and saying what state it is in."""

from __future__ import annotations

import sys

from ops import service
from ops.service import Service
from supervisor.config import locate
from supervisor.config.paths import name_of_run
from supervisor.errors import NotRunning, SupervisorError


def find(config: str) -> Service:
    """The service of a config file, alive or dead. Raises NotRunning when there is nothing at all."""
    place = locate(config)
    try:
        found = service.find(place.runtime_dirs)
    except PermissionError as error:
        raise SupervisorError(
            f"{config}: the runtime folder of {place.name}",
            found=f"{error.filename}, which belongs to another user",
            expected="one that can be read",
            do="run this as the user that runs the service, or as root",
        ) from None
    if found is None:
        looked = ", ".join(str(folder) for folder in place.runtime_dirs)
        raise NotRunning(
            f"{config}: nothing of {place.name} runs here",
            found=f"no supervisor in {looked}",
            do=f"{_how_to_start(config)}; it may also run as another user",
        )
    return found


def _how_to_start(config: str) -> str:
    if config.endswith(".py"):
        return f"`gym-supervise run {config}` starts it, and with --name it is asked for by that"
    if name_of_run(config) is not None:
        return f"there is no file {config}, and `gym-supervise run --name {config}` has not been called"
    return f"`gym-supervise serve {config}` starts it"


def tell_state(found: Service) -> None:
    """Say on stderr what is unusual about the supervisor; what is printed then is what it last wrote."""
    pid = found.supervisor_pid
    if found.state == "stopped":
        text = f"supervisor {pid} is stopped by a signal; deaths are not noticed until `kill -CONT {pid}`"
    elif found.state == "dead":
        text = f"supervisor {pid} is dead and did not clean up; this is what it left, and `serve` removes it"
    else:
        return
    print(f"gym-supervise: {text}", file=sys.stderr)
