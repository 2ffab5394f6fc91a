"""What is wrong with a server's `affinity`."""

from __future__ import annotations


class AffinityError(ValueError):
    """One key of `affinity` is wrong; the text says what was found, what was expected and what to do.

    key       the key below `affinity`, such as `cookie` or `sources[0].path`
    found     what was there
    expected  what should have been
    do        what to do about it, or nothing
    """

    def __init__(self, key: str, *, found: str, expected: str, do: str = "") -> None:
        super().__init__(f"found {found}, expected {expected}" + (f"; {do}" if do else ""))
        self.key = key
        self.found = found
        self.expected = expected
        self.do = do
