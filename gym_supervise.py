"""The command's entry point and the package's public face.

The distribution `supervisor` (supervisord) installs a package of the same name as one of ours. Where it has overwritten
ours, or comes before it on sys.path, nothing here could work; that is said before anything else is imported.
"""

from __future__ import annotations

import os
import sys

__all__ = ["__version__", "main", "serve"]

__version__ = "0.1.0"


def _foreign_supervisor() -> str | None:
    """What to say when the package `supervisor` is not ours, or None."""
    import importlib

    try:
        package = importlib.import_module("supervisor")
    except ImportError as error:
        return _refusal(f"no package `supervisor` that can be imported ({error})")
    if getattr(package, "DISTRIBUTION", None) == "gym-supervise":
        return None
    place = getattr(package, "__file__", None) or ", ".join(getattr(package, "__path__", [])) or "an unknown place"
    return _refusal(f"another package `supervisor` in {place}{_owners()}")


def _owners() -> str:
    import importlib.metadata

    try:
        names = importlib.metadata.packages_distributions().get("supervisor", [])
    except Exception:  # broken metadata of some distribution must not hide what is known
        return ""
    others = sorted({name for name in names if name != "gym-supervise"})
    return f", which the distribution {' and '.join(others)} installs" if others else ""


def _refusal(found: str) -> str:
    return (
        f"gym-supervise: found {found}, expected its own. Both cannot be in one environment: install gym-supervise in "
        "one of its own (python3 -m venv), or `pip uninstall supervisor` and then "
        "`pip install --force-reinstall --no-deps gym-supervise`. A file or folder named supervisor in the folder that "
        "Python was started in has the same effect."
    )


def serve(config: str | os.PathLike[str]) -> int:
    """Serve a config file in this process until a signal stops it, as `gym-supervise serve` does.

    Args:
        config: path of the YAML file.

    Returns:
        The command's exit status: 0 after an orderly end.

    Raises:
        supervisor.errors.SupervisorError: what the command prints; `exit_code` has its status.
        RuntimeError: another distribution's package `supervisor` is in the way.

    """
    foreign = _foreign_supervisor()
    if foreign:
        raise RuntimeError(foreign)
    from supervisor.commands.serve import run_file

    return run_file(config)


def main() -> None:
    """Run the `gym-supervise` command."""
    foreign = _foreign_supervisor()
    if foreign:
        print(foreign, file=sys.stderr)
        sys.exit(1)
    from supervisor.cli import main as run

    run()


if __name__ == "__main__":
    main()
