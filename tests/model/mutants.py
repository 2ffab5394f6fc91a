"""Ways to get it wrong. Each takes one guard out of the table's code; a test that does not see it is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import posix_ipc

from shmclaims.claims import StripeBusy
from shmclaims.entrance import Entrance, Entry
from shmclaims.layout import RING_WORD, ROW_WORDS, ROWS, TAG_SIZE, USED_WORD, RowState
from shmclaims.stripes import StripeRepair
from shmclaims.table import ClaimTable
from shmclaims.workers import WorkerRing

Patch = Callable[[type, str, Any], None]  # setattr, or a monkeypatch's


def post_if_zero(patch: Patch) -> None:
    """Repair posts whenever the value is 0, without waiting for live workers to leave."""

    def advance(self: StripeRepair, stripe: int, *_: object) -> None:
        self._finish(stripe)

    patch(StripeRepair, "_advance", advance)


def no_flag_check(patch: Patch) -> None:
    """Newcomers do not look at the repair flag."""
    init = Entrance.__init__

    def blind(self: Entrance, words: memoryview, stripes: Any) -> None:
        init(self, words, stripes)
        self._flags = [word + 2 for word in self._flags]  # words that nobody sets

    patch(Entrance, "__init__", blind)


def holder_word_only(patch: Patch) -> None:
    """The stripe is noted after it was taken and forgotten before it is posted; repair posts for a dead holder."""

    def enter(self: Entrance, stripe: int, entry: Entry) -> None:
        self._inside[0] = entry
        try:
            self._stripes.semaphores[stripe].acquire(0)
        except posix_ipc.BusyError:
            self._inside.clear()
            raise StripeBusy from None
        self._words[self._intent] = stripe + 1

    def leave(self: Entrance, stripe: int) -> None:
        self._words[self._intent] = 0
        self._stripes.semaphores[stripe].release()
        self._inside.clear()

    patch(Entrance, "enter", enter)
    patch(Entrance, "leave", leave)
    post_if_zero(patch)


def ready_only(patch: Patch) -> None:
    """Liveness is equality with one state: a draining worker's claims read as gone, and its tokens as lost."""

    def is_live(self: WorkerRing, incarnation: int) -> bool:
        word: int = self._words[RING_WORD + incarnation % ROWS * ROW_WORDS]
        return word == incarnation << 8 | RowState.READY

    patch(WorkerRing, "is_live", is_live)


def post_always(patch: Patch) -> None:
    """Repair posts without looking at the value."""
    finish = StripeRepair._finish

    def finish_and_post(self: StripeRepair, stripe: int) -> None:
        self._stripes.semaphores[stripe].release()
        finish(self, stripe)

    patch(StripeRepair, "_finish", finish_and_post)


def clear_before_post(patch: Patch) -> None:
    """The intent is cleared before the token is posted: killed in between, nobody knows of the loss."""

    def leave(self: Entrance, stripe: int) -> None:
        self._words[self._intent] = 0
        self._stripes.semaphores[stripe].release()
        self._inside.clear()

    patch(Entrance, "leave", leave)


def commit_before_body(patch: Patch) -> None:
    """The control word is published first: killed in between, the slot is damaged for good."""

    def early(self: ClaimTable, slot: int, control: int, body: bytes, used: int) -> None:
        self._words[slot] = control
        self._memory[slot * 8 + 8 : slot * 8 + 56] = body
        self._words[slot + USED_WORD] = used
        self._tags[self._tag_of(slot)] = int.from_bytes(body[:TAG_SIZE], "little")

    patch(ClaimTable, "_write", early)


FUZZED = {  # mutant -> shape of the table in which the fuzz sees it soonest
    "post-if-zero": "crowded",
    "no-flag-check": "crowded",
    "holder-word-only": "crowded",
    "ready-only": "crowded",
    "post-always": "crowded",
}
MUTANTS: dict[str, Callable[[Patch], None]] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        post_if_zero,
        no_flag_check,
        holder_word_only,
        ready_only,
        post_always,
        clear_before_post,
        commit_before_body,
    )
}
