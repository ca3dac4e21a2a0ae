"""A line about each autoscaler, the worst first, and which of them a form selects. Pure.

The order is that of the worst problem of a line: it does not scale, a metric has no value that counts, it
wants more pods than its maximum, its count flaps, it is slow. Of two lines with the same one, that with more
problems comes first, then that with the slower chain. Chains count by powers of two, so that a measured chain
does not move its line while it is looked at. The rest is alphabetical.
"""

import collections
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.autoscaling import boost
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST, HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.view import FleetEntry
from adapter.model.timestamps import SECOND
from adapter.model.visible import counted
from fastpath_tools.doctor.hops import plain, seconds
from fastpath_tools.live.api_objects import HPA

_FLAPS = 4
"""From how many changes of direction in an hour a count flaps."""

_SLOW = 60.0
"""The seconds from which a chain is slow."""

_WORTH = 1.0
"""The fewest seconds that boosting has to win to be worth a word."""

_LONGEST = 500
"""Characters of what others say that a line shows."""

UNKNOWN = "-"
NO_PROBLEM = frozenset({"ScalingDisabled", "AdviseOnly", "ScalingPaused"})
"""Reasons of a False condition that a person asked for."""


class Problem(enum.Enum):
    """What is wrong with an autoscaler, the worst first; the value is the text for it."""

    FAULT = "not scaling"
    STALE = "stale values"
    MAXIMUM = "at maximum"
    FLAPPING = "flapping"
    SLOW = "slow"


_RANKS = {problem: rank for rank, problem in enumerate(Problem)}


class ReactionTime(NamedTuple):
    """The seconds from load to ready pods, as far as known: without a part it is a lower bound.

    `gain` is how many of them boosting would win, `boosted` whether Fastpath raises it at the moment.
    """

    seconds: float
    whole: bool = True
    gain: float = 0.0
    boosted: bool = False


class Examined(NamedTuple):
    """What the page of an autoscaler says of it: `fault` is its sentence if that is one, else "".

    `ready` are its Ready pods; None is unknown. `is_stuck` tells whether pods of its target cannot start.
    """

    reaction: ReactionTime
    fault: str = ""
    is_stuck: bool = False
    ready: int | None = None
    last_scale: float | None = None


class FleetRow(NamedTuple):
    """One autoscaler. None is unknown; `fault` is why it does not scale, "" if it does.

    `overdue` is the number of metrics without a value that counts, `is_capped` tells whether it wants more
    pods than its maximum, `last_scale` is in seconds since the epoch. `reaction` is None before it was
    examined.
    """

    kind: str
    namespace: str
    name: str
    mode: str
    replicas: int | None
    desired: int | None
    min: int
    max: int
    is_capped: bool = False
    age: float | None = None
    reaction: ReactionTime | None = None
    overdue: int = 0
    reversals: int = 0
    floor: int = 0
    boosted: bool = False
    fault: str = ""
    last_scale: float | None = None
    ready: int | None = None

    def with_page(self, examined: Examined) -> Self:
        """Return the line with what the page of the autoscaler says."""
        times = [at for at in (self.last_scale, examined.last_scale) if at is not None]
        return self._replace(
            reaction=examined.reaction,
            fault=examined.fault or self.fault,
            is_capped=self.is_capped and not examined.is_stuck,
            ready=examined.ready,
            last_scale=max(times, default=None),
        )

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.namespace, self.name

    @property
    def _sentences(self) -> dict[Problem, str]:
        """Return what is wrong, the worst first, with the words for it."""
        fault = self.fault if len(self.fault) <= _LONGEST else f"{self.fault[:_LONGEST]}…"
        overdue = counted(self.overdue, "metric has", "metrics have")
        flaps = self.reversals >= _FLAPS
        is_slow = self.reaction is not None and self.reaction.seconds >= _SLOW
        sentences = {
            Problem.FAULT: fault,
            Problem.STALE: f"{overdue} no value that counts" if self.overdue else "",
            Problem.MAXIMUM: f"wants more than its maximum, {self.max}" if self.is_capped else "",
            Problem.FLAPPING: f"changed direction {self.reversals} times in the last hour" if flaps else "",
            Problem.SLOW: f"takes {self.reaction_text} to react" if is_slow else "",
        }
        return {problem: sentence for problem, sentence in sentences.items() if sentence}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong, the worst first."""
        return tuple(self._sentences)

    @property
    def finding(self) -> str:
        """Return the problems as one sentence, "" without any."""
        return "; ".join(self._sentences.values())

    @property
    def replicas_text(self) -> str:
        """Return the count, of how many it is Ready where not all are, and what is wanted."""
        if self.replicas is None:
            return "?"
        ready = f"{self.ready} / " if self.ready is not None and self.ready < self.replicas else ""
        moves = self.desired is not None and self.desired != self.replicas
        return f"{ready}{self.replicas}{f' → {self.desired}' if moves else ''}"

    @property
    def reaction_text(self) -> str:
        if self.reaction is None:
            return UNKNOWN
        return f"{'' if self.reaction.whole else '>'}{seconds(self.reaction.seconds)}"

    @property
    def boost_text(self) -> str:
        """Return whether Fastpath decides or boosts it, or what that would win."""
        if self.kind == KIND:
            return "fast scaler" if self.mode in {"", AUTO} else f"fast scaler, {self.mode.lower()}"
        if self.boosted or (self.reaction is not None and self.reaction.boosted):
            return f"boosted, floor {self.floor}" if self.floor else "boosted"
        if self.mode:
            return "not boosted" if self.mode == BOOST else "advice only"
        if self.reaction is None or self.fault:
            return UNKNOWN
        return f"would win {seconds(self.reaction.gain)}" if self.reaction.gain >= _WORTH else "no gain"


def rank(row: FleetRow) -> tuple[int, int, int, str, str, str]:
    """Return the place of a row among others; see the top of this module."""
    problems = row.problems
    worst = min((_RANKS[problem] for problem in problems), default=len(Problem))
    slowness = 0 if row.reaction is None else math.frexp(row.reaction.seconds)[1]
    return worst, -len(problems), -slowness, row.namespace, row.name, row.kind


# -- from what was read --------------------------------------------------------------------------------------


def from_entry(entry: FleetEntry, autoscaler: HPA | FastPathAutoscaler | None) -> FleetRow:
    """Return the line of an autoscaler that a scaler decides; `autoscaler` is its object, None if unread."""
    known = None if autoscaler is None else from_status(autoscaler)
    return FleetRow(
        entry.kind,
        entry.namespace,
        entry.name,
        entry.mode,
        entry.replicas or (None if entry.fault else entry.replicas),  # of no target there is no count
        entry.desired,
        entry.min,
        entry.max,
        entry.limited_by == Restraint.HIGHEST.value,
        entry.sample_age,
        None,
        0 if entry.limited_by == Restraint.DISABLED.value else entry.overdue,
        entry.reversals,
        entry.floor,
        entry.boosted,
        plain(entry.fault) or ("" if known is None else known.fault),
        None if known is None else known.last_scale,
    )


def from_status(autoscaler: HPA | FastPathAutoscaler, fault: str = "") -> FleetRow:
    """Return the line of an autoscaler as its object has it; `fault` comes before what that says."""
    meta, spec = autoscaler.metadata, autoscaler.spec
    status = autoscaler.status or HorizontalPodAutoscalerStatus()
    if isinstance(autoscaler, FastPathAutoscaler):
        kind, mode, decider = KIND, "", "scaler"  # its mode is a matter of the scaler's
    else:
        kind, mode = HPA_KIND, boost.read_annotations(meta.annotations).mode
        decider = "HPA controller"
    conditions = {condition.type: condition for condition in status.conditions or ()}
    limited = conditions.get("ScalingLimited", Condition())
    metrics = status.current_metrics or ()
    is_disabled = conditions.get("ScalingActive", Condition()).reason == "ScalingDisabled"
    fault = fault or _fault(conditions, decider)
    return FleetRow(
        kind,
        meta.namespace,
        meta.name,
        mode,
        status.current_replicas or (0 if autoscaler.status is not None and not fault else None),
        None if fault else status.desired_replicas,  # that of a decision before, or 0
        1 if spec.min_replicas is None else spec.min_replicas,
        spec.max_replicas,
        (limited.status, limited.reason) == ("True", "TooManyReplicas"),
        overdue=0 if is_disabled else sum(not metric.type for metric in metrics),
        fault=fault,
        last_scale=None if status.last_scale_time is None else status.last_scale_time / SECOND,
    )


def _fault(conditions: Mapping[str, Condition], decider: str) -> str:
    """Return why an autoscaler does not scale, as its conditions say it."""
    if not conditions:
        return f"the {decider} has not set conditions yet"
    for kind in ("AbleToScale", "ScalingActive"):
        condition = conditions.get(kind, Condition())
        if condition.status == "False" and condition.reason not in NO_PROBLEM:
            return f"{condition.reason}: {plain(condition.message)}"
    return ""


# -- what a form selects -------------------------------------------------------------------------------------

ANY = "any"
"""The value of the field `problem` for lines with any problem."""


class FleetFilter(NamedTuple):
    """The fields of the form: texts within namespace and name, and the name of a problem or `ANY`."""

    namespace: str = ""
    name: str = ""
    problem: str = ""

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> Self:
        """Return the filter; a problem that does not exist selects all."""
        problem = query.get("problem", "")
        known = {ANY, *(problem.name.lower() for problem in Problem)}
        return cls(
            query.get("namespace", "").strip().lower(),
            query.get("name", "").strip().lower(),
            problem if problem in known else "",
        )

    def select(self, rows: Iterable[FleetRow]) -> list[FleetRow]:
        return [row for row in rows if self._admits(row)]

    def _admits(self, row: FleetRow) -> bool:
        if self.namespace not in row.namespace or self.name not in row.name:
            return False
        if self.problem == ANY:
            return bool(row.problems)
        return not self.problem or Problem[self.problem.upper()] in row.problems


def count_problems(rows: Sequence[FleetRow]) -> dict[Problem, int]:
    """Return how many lines have each problem, those that exist only, the worst first."""
    counts = collections.Counter(problem for row in rows for problem in row.problems)
    return {problem: counts[problem] for problem in Problem if counts[problem]}
