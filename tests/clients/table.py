"""What was seen, as the tables that are shown at the end."""

from __future__ import annotations

from collections.abc import Iterator

COLUMNS = ("plain", "close", "keep")
HEADS = ("server, client", "plain 4 workers", "gym-supervise 4 workers, a connection per request", "kept alive")


class Table:
    """Sessions that were right, by row and way; and what became of those whose worker was killed."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, str]] = {}
        self._deaths: dict[str, str] = {}

    def note(self, row: str, column: str, errors: list[str | None], *, several: int = 0) -> None:
        """Keep a result; `several` is how many ids were seen on more than one accepting worker."""
        right = sum(error is None for error in errors)
        spread = f" ({min(several, len(errors))})" if several else ""
        self._cells.setdefault(row, {})[column] = f"{right} of {len(errors)}{spread}"

    def note_death(self, row: str, text: str) -> None:
        """Keep what a client saw of its session's worker's death."""
        self._deaths[row] = text

    def lines(self) -> Iterator[str]:
        """The tables, in Markdown."""
        if self._cells:
            yield "Right sessions (in brackets: those whose requests more than one worker has accepted)"
            yield "| " + " | ".join(HEADS) + " |"
            yield "|---" * len(HEADS) + "|"
            for row, cells in self._cells.items():
                yield f"| {row} | " + " | ".join(cells.get(column, "") for column in COLUMNS) + " |"
        if self._deaths:
            yield ""
            yield "| client | its session's worker is killed |"
            yield "|---|---|"
            for row, text in self._deaths.items():
                yield f"| {row} | {text} |"


TABLE = Table()
