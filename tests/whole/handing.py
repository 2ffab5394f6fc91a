"""How a service of the tests hands connections over: told by HANDING in its workers' environment.

never    all is relayed
always   also a connection that has had a single request of another worker's session
"""

from __future__ import annotations

NEVER, ALWAYS = "never", "always"


def change_handing(how: str | None) -> None:
    """Change this worker's rule; None: it stays as it is."""
    if how is None:
        return
    from supervisor.handover import protocols

    if how == NEVER:
        protocols.MIXED_INTO.clear()
    else:
        assert how == ALWAYS, how
        protocols.IN_A_ROW = 1
