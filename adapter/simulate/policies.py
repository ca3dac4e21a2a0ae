"""The policies of a simulation: which autoscaler runs, and how often it looks.

A policy is written as `NAME[:key=value,...]`. `native` is an HPA with its controller; `fast` is a
FastPathAutoscaler; `boost` is the HPA with the raises of the fast-scaler; `fixed` is a count. `keda` is an
HPA whose metrics KEDA polls, `kpa` the autoscaler of Knative, `persistence` the last value times a factor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.quantity import Quantity
from adapter.model.quantity import read as read_quantity
from adapter.simulate.workload import MOST_REPLICAS

FLAG = "--policy"
NATIVE, FAST, BOOST, FIXED = "native", "fast", "boost", "fixed"
PERSISTENCE, KEDA, KPA = "persistence", "keda", "kpa"

UNSCHEDULED = (NATIVE, FIXED, PERSISTENCE, KEDA, KPA)
"""The policies that follow no schedule and no forecast."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The seconds between two scrapes, of the window of a value, and between two decisions."""

    scrape: int
    window: int
    decide: int


NATIVE_PACE = Pace(15, 60, 15)
FAST_PACE = Pace(1, 5, 1)
KEDA_POLL = 30


class Persistence(NamedTuple):
    """Each `sync` seconds it decides on the mean load of the last `window` seconds, times `x`."""

    x: float = 1.0
    window: int = 60
    sync: int = 60


class Knative(NamedTuple):
    """What `config-autoscaler` of Knative sets, with its defaults; ratios are shares, times are seconds."""

    window: int = 60
    panic_window: int = 6
    panic_threshold: float = 2.0
    max_scale_up: float = 1000.0
    max_scale_down: float = 2.0
    scale_down_delay: int = 0
    tick: int = 2


@dataclass(frozen=True, slots=True)
class SimulatedPolicy:
    """A policy. `text` is how it was written; `native` and `fast` are the paces of the chains that it has.

    `usage` is the pace of CPU and memory as the metrics API has them, which the fast chain reads too.
    """

    text: str
    name: str
    native: Pace | None = None
    fast: Pace | None = None
    usage: Pace | None = None
    poll: int = 0
    """The seconds between two polls of `keda`."""
    peer: Persistence | Knative | None = None
    """The settings of an autoscaler that is neither an HPA nor a FastPathAutoscaler."""
    replicas: int = 0
    """The count of `fixed`."""
    target: Quantity | None = None
    target_share: float = 1.0
    """What all targets are multiplied by."""
    min_replicas: int | None = None
    max_replicas: int | None = None
    behavior: str = ""
    """The file with the `behavior` that replaces that of the autoscaler."""


_PACES = {"window": (0, 24 * 3600)}
_OTHER_PACE = (1, 3600)
_BOUNDS = {"target", "minReplicas", "maxReplicas"}
_COMMON = _BOUNDS | {"behavior"}
_KEYS = {
    NATIVE: {"scrape", "window", "sync"} | _COMMON,
    FAST: {"scrape", "window", "tick", "slowScrape", "slowWindow"} | _COMMON,
    BOOST: {"scrape", "window", "sync", "tick", "fastScrape", "fastWindow"} | _COMMON,
    FIXED: {"replicas"},
    PERSISTENCE: {"x", "window", "sync"} | _BOUNDS,
    KEDA: {"scrape", "window", "poll", "sync"} | _COMMON,
    KPA: {"window", "panicWindow", "panicThreshold", "maxScaleUp", "maxScaleDown", "scaleDownDelay", "tick"}
    | _BOUNDS,
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
    if name in (NATIVE, BOOST, KEDA):
        native = Pace(
            _seconds(text, given, "scrape", NATIVE_PACE.scrape),
            _seconds(text, given, "window", NATIVE_PACE.window),
            _seconds(text, given, "sync", NATIVE_PACE.decide),
        )
    if name in (FAST, BOOST):
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
        poll=_seconds(text, given, "poll", KEDA_POLL) if name == KEDA else 0,
        peer=_peer(text, name, given),
        target=_quantity(text, given["target"]) if "target" in given else None,
        min_replicas=_count(text, "minReplicas", given["minReplicas"]) if "minReplicas" in given else None,
        max_replicas=_count(text, "maxReplicas", given["maxReplicas"]) if "maxReplicas" in given else None,
        behavior=given.get("behavior", ""),
    )


def _peer(text: str, name: str, given: Mapping[str, str]) -> Persistence | Knative | None:
    if name == PERSISTENCE:
        usual = Persistence()
        return Persistence(
            _number(text, given, "x", usual.x, (0.01, 100)),
            _seconds(text, given, "window", usual.window, _OTHER_PACE),
            _seconds(text, given, "sync", usual.sync),
        )
    if name != KPA:
        return None
    default = Knative()
    window = _seconds(text, given, "window", default.window, (6, 3600))
    # Knative has the panic window as a share of the stable one
    panic_window = max(1, round(window * default.panic_window / default.window))
    return Knative(
        window,
        _seconds(text, given, "panicWindow", panic_window, (1, window)),
        _number(text, given, "panicThreshold", 100 * default.panic_threshold, (110, 1000)) / 100,
        _number(text, given, "maxScaleUp", default.max_scale_up, (1.01, 1_000_000)),
        _number(text, given, "maxScaleDown", default.max_scale_down, (1.01, 1_000_000)),
        _seconds(text, given, "scaleDownDelay", default.scale_down_delay, (0, 3600)),
        _seconds(text, given, "tick", default.tick),
    )


def _seconds(
    text: str, given: Mapping[str, str], key: str, default: int, limits: tuple[int, int] | None = None
) -> int:
    if key not in given:
        return default
    low, high = limits or _PACES.get(key.removeprefix("fast").removeprefix("slow").lower(), _OTHER_PACE)
    written = given[key]
    try:
        seconds = float(written) if written.isdigit() else timestamps.parse_go_duration(written)
    except ValueError:
        seconds = -1.0
    if not low <= seconds <= high or seconds != int(seconds):
        raise _error(text, f"{key}={written}: expected whole seconds such as 15s, from {low} to {high}")
    return int(seconds)


def _number(
    text: str, given: Mapping[str, str], key: str, default: float, limits: tuple[float, float]
) -> float:
    written, (low, high) = given.get(key, ""), limits
    if not written:
        return default
    try:
        number = float(written) if "_" not in written else math.nan
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise _error(text, f"{key}={written}: expected a number from {low:g} to {high:,.15g}")
    return number


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
