"""The policies of a simulation: which autoscaler runs, and how often it looks.

A policy is written as `NAME[:key=value,...]`. `native` is an HPA with its controller; `fast` is a
FastPathAutoscaler; `boost` is the HPA with the raises of the fast-scaler; `fixed` is a count.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.quantity import Quantity
from adapter.model.quantity import read as read_quantity
from adapter.simulate.workload import MOST_REPLICAS

FLAG = "--policy"
NATIVE, FAST, BOOST, FIXED = "native", "fast", "boost", "fixed"


@dataclass(frozen=True, slots=True)
class Pace:
    """The seconds between two scrapes, of the window of a value, and between two decisions."""

    scrape: int
    window: int
    decide: int


NATIVE_PACE = Pace(15, 60, 15)
FAST_PACE = Pace(1, 5, 1)


@dataclass(frozen=True, slots=True)
class SimulatedPolicy:
    """A policy. `text` is how it was written; `native` and `fast` are the paces of the chains that it has.

    `usage` is the pace of CPU and memory as the metrics API has them, which the fast chain reads besides.
    """

    text: str
    name: str
    native: Pace | None = None
    fast: Pace | None = None
    usage: Pace | None = None
    replicas: int = 0
    """The count of `fixed`."""
    target: Quantity | None = None
    target_share: float = 1.0
    """What all targets are multiplied by."""
    min_replicas: int | None = None
    max_replicas: int | None = None
    behavior: str = ""
    """The file with the `behavior` that replaces that of the autoscaler."""


_PACES = {"scrape": (1, 3600), "window": (0, 24 * 3600), "sync": (1, 3600), "tick": (1, 3600)}
_COMMON = {"target", "minReplicas", "maxReplicas", "behavior"}
_KEYS = {
    NATIVE: {"scrape", "window", "sync"} | _COMMON,
    FAST: {"scrape", "window", "tick", "slowScrape", "slowWindow"} | _COMMON,
    BOOST: {"scrape", "window", "sync", "tick", "fastScrape", "fastWindow"} | _COMMON,
    FIXED: {"replicas"},
}


def read_policy(text: str) -> SimulatedPolicy:
    """Return the policy of `NAME[:key=value,...]`. Raises InputError."""
    name, colon, rest = text.partition(":")
    if name not in _KEYS:
        raise _error(text, f"expected {', '.join(_KEYS)}, with :key=value,... behind the name")
    given: dict[str, str] = {}
    for pair in rest.split(",") if colon else ():
        key, equals, value = pair.partition("=")
        if not equals or key not in _KEYS[name]:
            raise _error(
                text, f"{key or 'nothing'}: expected one of {', '.join(sorted(_KEYS[name]))} with =value"
            )
        if key in given:
            raise _error(text, f"{key}: expected once")
        if not value:
            raise _error(text, f"{key}: expected a value behind the =")
        given[key] = value
    if name == FIXED:
        return SimulatedPolicy(text, name, replicas=_count(text, "replicas", given.get("replicas", "")))
    native = fast = usage = None
    if name != FAST:
        native = Pace(
            _seconds(text, given, "scrape", NATIVE_PACE.scrape),
            _seconds(text, given, "window", NATIVE_PACE.window),
            _seconds(text, given, "sync", NATIVE_PACE.decide),
        )
    if name != NATIVE:
        prefixed = name == BOOST
        fast = Pace(
            _seconds(text, given, "fastScrape" if prefixed else "scrape", FAST_PACE.scrape),
            _seconds(text, given, "fastWindow" if prefixed else "window", FAST_PACE.window),
            _seconds(text, given, "tick", FAST_PACE.decide),
        )
        usage = native or Pace(
            _seconds(text, given, "slowScrape", NATIVE_PACE.scrape),
            _seconds(text, given, "slowWindow", NATIVE_PACE.window),
            fast.decide,
        )
    return SimulatedPolicy(
        text,
        name,
        native,
        fast,
        usage,
        target=_quantity(text, given["target"]) if "target" in given else None,
        min_replicas=_count(text, "minReplicas", given["minReplicas"]) if "minReplicas" in given else None,
        max_replicas=_count(text, "maxReplicas", given["maxReplicas"]) if "maxReplicas" in given else None,
        behavior=given.get("behavior", ""),
    )


def _seconds(text: str, given: Mapping[str, str], key: str, default: int) -> int:
    if key not in given:
        return default
    low, high = _PACES[key.removeprefix("fast").removeprefix("slow").lower()]
    written = given[key]
    try:
        seconds = float(written) if written.isdigit() else timestamps.parse_go_duration(written)
    except ValueError:
        seconds = -1.0
    if not low <= seconds <= high or seconds != int(seconds):
        raise _error(text, f"{key}={written}: expected whole seconds such as 15s, from {low} to {high}")
    return int(seconds)


def _count(text: str, key: str, written: str) -> int:
    if not (written.isascii() and written.isdigit() and len(written) < 10 and int(written) <= MOST_REPLICAS):
        raise _error(text, f"{key}={written}: expected a whole number from 0 to {MOST_REPLICAS}")
    return int(written)


def _quantity(text: str, written: str) -> Quantity:
    try:
        quantity = read_quantity(written)
    except ValueError:
        quantity = None
    if quantity is None or quantity.sign <= 0 or not quantity.has_milli:
        raise _error(text, f"target={written}: expected a quantity above 0 such as 10 or 500m")
    return quantity


def _error(text: str, expected: str) -> InputError:
    return InputError([Fault(FLAG, text, expected)])
