"""The command's entry point and the package's public face."""

from __future__ import annotations

__version__ = "0.1.0"


def main() -> None:
    """Run the `gym-supervise` command."""
    from supervisor.cli import main as run

    run()
