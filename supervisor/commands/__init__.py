"""The subcommands, one module each; `supervisor.cli` imports them by name."""
