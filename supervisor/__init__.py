"""The supervisor: configuration, processes, routing, relay, and the command.

`DISTRIBUTION` is how `gym_supervise` tells this package from the one of the same name that supervisord installs.
"""

DISTRIBUTION = "gym-supervise"
