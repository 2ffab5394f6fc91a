"""What to say to somebody whose server has several workers and no affinity, from what its app looks like."""

from __future__ import annotations

from collections.abc import Sequence

from server_adapters.likeness import Likeness


def propose(found: Sequence[Likeness], *, as_options: bool = False) -> str:
    """The proposal, for a config or as options of `run`; empty when the app looks like nothing that is known."""
    likely = next((one for one in found if one.known), None)
    if likely is None:
        if not found:
            return ""
        return f"it looks like {found[0].preset} ({found[0].because}), for which this version has no preset"
    if not as_options:
        return f"it looks like `{likely.affinity}` ({likely.because})"
    key, _, value = likely.options.partition(": ")
    rest = f" --set affinity.{key}={value.partition(',')[0]}" if key else ""
    return f"it looks like `--preset {likely.preset}{rest}` ({likely.because})"
