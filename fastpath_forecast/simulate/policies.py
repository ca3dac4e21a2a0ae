"""The policies of a simulation: which autoscaler runs, and how often it looks.

A policy is written as `NAME[:key=value,...]`. `native` is an HPA with its controller; `fast` is a
FastPathAutoscaler; `boost` is the HPA with the raises of the fast-scaler; `fixed` is a count. Other
autoscalers are kinds that the caller of `read_policy` adds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, Protocol

from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.quantity import Quantity
from adapter.model.quantity import read as read_quantity
from fastpath_forecast.simulate.chain import Signal
from fastpath_forecast.simulate.engine import AnyChain
from fastpath_forecast.simulate.workload import MOST_REPLICAS

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


class PeerSettings(Protocol):
    """The settings of an autoscaler that is neither an HPA nor a FastPathAutoscaler."""

    def begin(self, phase: float) -> int:
        """Return the second of its first decision; `phase` is a share of the time between two."""

    def build_chain(
        self, loads: Sequence[float], capacities: Sequence[float], bounds: tuple[int, int], phase: float
    ) -> AnyChain:
        """Return what decides. `loads` are those of second 0, `bounds` the fewest and the most pods."""


class PollSettings(Protocol):
    """What an HPA asks for its metrics, all but CPU and memory, in place of an adapter."""

    def begin(self, phase: float) -> int:
        """Return the second of its first poll; `phase` is a share of the time between two."""

    def rewrite(self, autoscaler: FastPathAutoscaler) -> FastPathAutoscaler:
        """Return the autoscaler with the metrics that it asks this for."""

    def build_signal(self, pace: Pace, load: float, start: int, phase: float) -> Signal:
        """Return how it sees a load whose scrapes begin at the second `start`."""


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
    poller: PollSettings | None = None
    peer: PeerSettings | None = None
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
OTHER_PACE = (1, 3600)
BOUNDS = frozenset({"target", "minReplicas", "maxReplicas"})
COMMON = BOUNDS | {"behavior"}


class Given:
    """The keys of a policy as they are written. What reads one raises InputError with what was expected."""

    def __init__(self, text: str, values: Mapping[str, str]) -> None:
        self.text = text
        self._values = values

    def seconds(self, key: str, default: int, limits: tuple[int, int] | None = None) -> int:
        if (written := self._values.get(key)) is None:
            return default
        low, high = limits or _PACES.get(key.removeprefix("fast").removeprefix("slow").lower(), OTHER_PACE)
        try:
            seconds = float(written) if written.isdigit() else timestamps.parse_go_duration(written)
        except ValueError:
            seconds = -1.0
        if not low <= seconds <= high or seconds != int(seconds):
            raise self.error(f"{key}={written}: expected whole seconds such as 15s, from {low} to {high}")
        return int(seconds)

    def number(self, key: str, default: float, limits: tuple[float, float]) -> float:
        if (written := self._values.get(key)) is None:
            return default
        low, high = limits
        try:
            number = float(written) if "_" not in written else math.nan
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            raise self.error(f"{key}={written}: expected a number from {low:g} to {high:,.15g}")
        return number

    def count(self, key: str) -> int | None:
        if (written := self._values.get(key)) is None:
            return None
        is_number = written.isascii() and written.isdigit() and len(written) < 10
        if not (is_number and int(written) <= MOST_REPLICAS):
            raise self.error(f"{key}={written}: expected a whole number from 0 to {MOST_REPLICAS}")
        return int(written)

    def quantity(self, key: str) -> Quantity | None:
        if (written := self._values.get(key)) is None:
            return None
        try:
            quantity = read_quantity(written)
        except ValueError:
            quantity = None
        if quantity is None or quantity.sign <= 0 or not quantity.has_milli:
            raise self.error(f"{key}={written}: expected a quantity above 0 such as 10 or 500m")
        return quantity

    def file(self, key: str) -> str:
        return self._values.get(key, "")

    def error(self, expected: str) -> InputError:
        return InputError([Fault(FLAG, self.text, expected)])


class PolicyKind(NamedTuple):
    """The keys of the policies of one name, and what makes the policy of them."""

    keys: frozenset[str]
    read: Callable[[str, Given], SimulatedPolicy]
    """Returns the policy of a name, without what `COMMON` keys set."""


def read_native_pace(given: Given) -> Pace:
    return Pace(
        given.seconds("scrape", NATIVE_PACE.scrape),
        given.seconds("window", NATIVE_PACE.window),
        given.seconds("sync", NATIVE_PACE.decide),
    )


def _read_native(name: str, given: Given) -> SimulatedPolicy:
    return SimulatedPolicy(given.text, name, native=read_native_pace(given))


def _read_fast(name: str, given: Given) -> SimulatedPolicy:
    native = read_native_pace(given) if name == BOOST else None
    scrape, window = ("fastScrape", "fastWindow") if name == BOOST else ("scrape", "window")
    fast = Pace(
        given.seconds(scrape, FAST_PACE.scrape),
        given.seconds(window, FAST_PACE.window),
        given.seconds("tick", FAST_PACE.decide),
    )
    usage = native or Pace(
        given.seconds("slowScrape", NATIVE_PACE.scrape),
        given.seconds("slowWindow", NATIVE_PACE.window),
        fast.decide,
    )
    return SimulatedPolicy(given.text, name, native, fast, usage)


def _read_fixed(name: str, given: Given) -> SimulatedPolicy:
    if (replicas := given.count("replicas")) is None:
        raise given.error(f"replicas=: expected a whole number from 0 to {MOST_REPLICAS}")
    return SimulatedPolicy(given.text, name, replicas=replicas)


KINDS: Mapping[str, PolicyKind] = MappingProxyType(
    {
        NATIVE: PolicyKind(COMMON | {"scrape", "window", "sync"}, _read_native),
        FAST: PolicyKind(COMMON | {"scrape", "window", "tick", "slowScrape", "slowWindow"}, _read_fast),
        BOOST: PolicyKind(
            COMMON | {"scrape", "window", "sync", "tick", "fastScrape", "fastWindow"}, _read_fast
        ),
        FIXED: PolicyKind(frozenset({"replicas"}), _read_fixed),
    }
)


def read_policy(text: str, kinds: Mapping[str, PolicyKind] = KINDS) -> SimulatedPolicy:
    """Return the policy of `NAME[:key=value,...]`. Raises InputError."""
    name, colon, rest = text.partition(":")
    values: dict[str, str] = {}
    given = Given(text, values)
    if name not in kinds:
        raise given.error(f"expected {', '.join(kinds)}, with :key=value,... behind the name")
    kind = kinds[name]
    for pair in rest.split(",") if colon else ():
        key, equals, value = pair.partition("=")
        if not equals or key not in kind.keys:
            raise given.error(
                f"{key or 'nothing'}: expected one of {', '.join(sorted(kind.keys))} with =value"
            )
        if key in values:
            raise given.error(f"{key}: expected once")
        if not value:
            raise given.error(f"{key}: expected a value behind the =")
        values[key] = value
    return replace(
        kind.read(name, given),
        target=given.quantity("target"),
        min_replicas=given.count("minReplicas"),
        max_replicas=given.count("maxReplicas"),
        behavior=given.file("behavior"),
    )
