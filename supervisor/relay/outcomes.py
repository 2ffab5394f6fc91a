"""What a router orders from the relay, and every way in which a relayed request can end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec


class Order(msgspec.Struct, frozen=True, gc=False):
    """What to relay.

    owner    incarnation of the worker that it is for
    mode     "owned": by its claim; "placed": a start that the owner is asked to claim
    session  the session's id, or None; flags: the routers' own, carried as they are
    headers  the request's headers in place of the scope's; None: the scope's
    """

    owner: int
    mode: Literal["owned", "placed"] = "owned"
    session: str | None = None
    flags: int = 0
    headers: Sequence[tuple[bytes, bytes]] | None = None


class Taken(msgspec.Struct, frozen=True, gc=False):
    """The owner took the request and its reply has been sent.

    complete  False: the client went away, or the app ended in the middle of its reply. Return without another
              message: the server then breaks the client's connection off.
    """

    complete: bool = True


class NotOwner(msgspec.Struct, frozen=True, gc=False):
    """Nothing has run; `incarnation` owns the session, if that is known."""

    incarnation: int | None = None


class Draining(msgspec.Struct, frozen=True, gc=False):
    """Nothing has run: the worker takes no new sessions."""


class Late(msgspec.Struct, frozen=True, gc=False):
    """Nothing has run: the request came late to its owner, and is to be sent again if its client is still there."""


class Gone(msgspec.Struct, frozen=True, gc=False):
    """The session is gone: the owner says so, or it is dead and had not taken the request.

    A placed request has certainly not run and may be placed elsewhere.
    """


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Nothing has run: the owner wants the acceptor's own reply of `kind`, with `facts`."""

    kind: str
    facts: Mapping[str, Any] = {}


class Unreachable(msgspec.Struct, frozen=True, gc=False):
    """The owner lives but could not be reached, or lost the request: `reason` says how."""

    reason: str


class OwnerLost(msgspec.Struct, frozen=True, gc=False):
    """The owner died after it had taken the request.

    started  False: no byte of the reply was sent, a reply can still be made. True: return without another message,
             so that the server breaks the client's connection off.
    """

    started: bool


class Overloaded(msgspec.Struct, frozen=True, gc=False):
    """Nothing has run: this process is out of descriptors."""


Outcome = Taken | NotOwner | Draining | Late | Gone | Refused | Unreachable | OwnerLost | Overloaded
