"""Loads in words and as JSON: how long they are, their values, and what they leave open."""

import math
from collections.abc import Mapping

from fastpath_forecast.simulate.load import Load
from fastpath_tools.tables import duration, share


def load_document(loads: Mapping[str, Load]) -> dict[str, object]:
    """Return what a load is; seconds in gaps and under saturation only where there are any."""
    document: dict[str, object] = {"seconds": seconds_of(loads)}
    if len(loads) == 1:
        document |= _extent(next(iter(loads.values())))
    else:
        document["metrics"] = {name: _extent(load) for name, load in loads.items()}
    gaps, saturated = gap_seconds(loads), saturated_seconds(loads)
    return (
        document
        | ({"gapSeconds": gaps} if gaps else {})
        | ({"saturatedSeconds": saturated} if saturated else {})
    )


def _extent(load: Load) -> dict[str, float | None]:
    values = {"mean": round(load.mean, 6), "max": round(load.highest, 6)}
    return {name: None if math.isnan(value) else float(value) for name, value in values.items()}


def seconds_of(loads: Mapping[str, Load]) -> int:
    """Return the seconds that are simulated: those of the shortest load."""
    return min(load.seconds for load in loads.values())


def gap_seconds(loads: Mapping[str, Load]) -> int:
    """Return the seconds of the largest gaps of a load."""
    return max(load.seconds - load.known_seconds for load in loads.values())


def saturated_seconds(loads: Mapping[str, Load]) -> int:
    return max(sum(span.end - span.start for span in load.saturated) for load in loads.values())


def describe_loads(loads: Mapping[str, Load]) -> str:
    """Return how long the loads are, and the mean and the highest value of each."""
    values = "; ".join(
        f"{name} with a mean of {load.mean:.6g} and at most {load.highest:.6g}"
        for name, load in loads.items()
    )
    return f"{duration(seconds_of(loads))} of {values}"


def load_notes(loads: Mapping[str, Load]) -> list[str]:
    """Return what the loads leave open: gaps, saturation, and different lengths."""
    seconds, notes = seconds_of(loads), []
    if gaps := gap_seconds(loads):
        notes.append(
            f"{duration(gaps)} of the load ({share(gaps, seconds)}) are gaps without a sample: there the "
            "autoscalers see no value, and only pod seconds are counted"
        )
    if saturated := saturated_seconds(loads):
        notes.append(
            f"in {duration(saturated)} ({share(saturated, seconds)}) all pods were saturated when the load "
            "was recorded: the demand may have been higher, and so may the shortage"
        )
    if len({load.seconds for load in loads.values()}) > 1:
        notes.append(f"the loads differ in length: the first {duration(seconds)} of each are simulated")
    return notes
