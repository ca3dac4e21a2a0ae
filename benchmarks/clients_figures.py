"""The loads of `benchmarks.clients`, and what its trials come to: arithmetic, no IO.

A figure is a mean of the trials, or the median of them (`p50`), or the longest. Its range holds 95 % of what
2,000 draws of as many trials with replacement come to.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LOW, HIGH = 8.0, 56.0
"""Requests a second before the step and at the most."""

WORK_SECONDS, CONCURRENCY = 0.5, 5
"""What a request takes, and how many a pod works on at once. Others wait in the pod."""

TARGET = 3.5
LEAST, MOST = 2, 12
NEEDED = math.ceil(HIGH * WORK_SECONDS / TARGET)
SLOW_SECONDS = 1.25
TIMEOUT_SECONDS = 30.0

SETTINGS = {
    "low": LOW,
    "high": HIGH,
    "work_seconds": WORK_SECONDS,
    "concurrency": CONCURRENCY,
    "target": TARGET,
    "least": LEAST,
    "most": MOST,
    "slow_seconds": SLOW_SECONDS,
    "timeout_seconds": TIMEOUT_SECONDS,
}

TWINS = {"native": "HPA alone", "boosted": "HPA with boost", "fast": "fast-scaler"}

_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Case:
    """A load, how pods start, and the `behavior` of all autoscalers; times count from the step."""

    short: str
    """What the picture calls it."""
    about: str
    seconds: int
    """How long requests are sent that count."""
    rate: Callable[[float], float]
    start: int = 2
    behavior: Mapping[str, Any] = field(default_factory=dict)


def _step(seconds: float) -> float:
    return HIGH if seconds >= 0 else LOW


def _spike(seconds: float) -> float:
    return HIGH if 0 <= seconds < 10 else LOW


def _ramp(seconds: float) -> float:
    return LOW + (HIGH - LOW) * min(max(seconds / 30, 0), 1)


FAST_POLICY = {"scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]}}

CASES = {
    "step": Case("Step", "step", 45, _step),
    "fast_policy": Case(
        "Step, 900 % in 15 s allowed", "step, `scaleUp` of 900 % in 15 s", 40, _step, behavior=FAST_POLICY
    ),
    "slow_start": Case("Step, pods start in 20 s", "step, pods start in 20 s", 60, _step, start=20),
    "ramp": Case("Ramp of 30 s", "ramp of 30 s", 50, _ramp),
    "spike": Case("Spike of 10 s", "spike of 10 s", 40, _spike),
}


@dataclass(slots=True)
class Pod:
    """When a pod was created, Ready, and asked to end."""

    created: float
    ready: float = math.inf
    ended: float = math.inf


class Answer(NamedTuple):
    """When a request was due, and the seconds until its answer; infinite without a right one."""

    due: float
    seconds: float


@dataclass(slots=True)
class Outcome:
    """What a trial came to for one twin; times count from the step."""

    seconds: int
    answers: list[Answer]
    counts: list[tuple[float, int]]
    """Each change of the replicas that its Deployment asks for."""
    pods: list[Pod]

    def slow_share(self) -> float:
        return statistics.fmean(answer.seconds > SLOW_SECONDS for answer in self.answers)

    def failed_share(self) -> float:
        return statistics.fmean(math.isinf(answer.seconds) for answer in self.answers)

    def percentile(self, share: float) -> float:
        times = sorted(min(answer.seconds, TIMEOUT_SECONDS) for answer in self.answers)
        return times[min(len(times) - 1, int(share * len(times)))]

    def before(self) -> int:
        """Return the replicas before the step."""
        return next(count for at, count in reversed(self.counts) if at < 0)

    def raised(self) -> float:
        """Return the seconds to the first raise, all of the trial without one."""
        return self._within(at for at, count in self.counts if at >= 0 and count > self.before())

    def all_ready(self) -> float:
        """Return the seconds until the needed pods are Ready, all of the trial if they never are."""
        times = sorted(pod.ready for pod in self.pods if pod.ended > pod.ready)
        return self._within(times[NEEDED - 1 :])

    def ready_counts(self) -> list[tuple[float, int]]:
        """Return the pods that were Ready, each time a new one was."""
        times = sorted(round(pod.ready, 1) for pod in self.pods if 0 < pod.ready < self.seconds)
        return [(at, self.before() + new) for new, at in enumerate(times, 1)]

    def pod_seconds(self) -> float:
        return sum(max(0.0, min(pod.ended, self.seconds) - max(pod.created, 0)) for pod in self.pods)

    def starts(self) -> list[float]:
        """Return the seconds from creation to Ready of each pod that the trial started."""
        return [pod.ready - pod.created for pod in self.pods if pod.created > 0 and pod.ready < self.seconds]

    def _within(self, times: Iterable[float]) -> float:
        return max(0.0, min((*times, float(self.seconds))))


def slow_curve(outcomes: Sequence[Outcome]) -> str:
    """Return the percentage of slow requests among those due in each second, as words of a line."""
    by_second: list[list[bool]] = [[] for _ in range(outcomes[0].seconds)]
    for outcome in outcomes:
        for answer in outcome.answers:
            by_second[int(answer.due)].append(answer.seconds > SLOW_SECONDS)
    return " ".join(f"{100 * statistics.fmean(slow):.0f}" for slow in by_second)


Trial = Mapping[str, Outcome]
"""The outcomes of one trial by twin."""


class Measure(NamedTuple):
    """A column of the table: what it is of one trial, and of all."""

    head: str
    of_trial: Callable[[Trial, str], float]
    of_all: Callable[[Sequence[float]], float] = statistics.fmean


MEASURES = {
    "slow_share": Measure("slow or failed", lambda trial, twin: trial[twin].slow_share()),
    "failed_share": Measure("failed", lambda trial, twin: trial[twin].failed_share()),
    "p95_seconds": Measure("p95", lambda trial, twin: trial[twin].percentile(0.95)),
    "p99_seconds": Measure("p99", lambda trial, twin: trial[twin].percentile(0.99)),
    "raised_p50_seconds": Measure(
        "first raise: median", lambda trial, twin: trial[twin].raised(), statistics.median
    ),
    "raised_max_seconds": Measure("longest", lambda trial, twin: trial[twin].raised(), max),
    "ready_p50_seconds": Measure(
        f"{NEEDED} pods Ready: median", lambda trial, twin: trial[twin].all_ready(), statistics.median
    ),
    "pods_ratio": Measure(
        "pod seconds", lambda trial, twin: trial[twin].pod_seconds() / trial["native"].pod_seconds()
    ),
}


def measure(name: str, trials: Sequence[Trial], seed: int) -> Iterator[tuple[str, float, str]]:
    """Yield each figure of a case, with its range as `low high`."""
    for twin in TWINS:
        for figure, each in MEASURES.items():
            values = [each.of_trial(trial, twin) for trial in trials]
            draws = random.Random(seed)
            drawn = sorted(each.of_all(draws.choices(values, k=len(values))) for _ in range(_DRAWS))
            low, high = drawn[_DRAWS // 40], drawn[-_DRAWS // 40]
            yield f"{name}_{twin}_{figure}", each.of_all(values), f"{low:.4g} {high:.4g}"


def table(figures: Mapping[str, float], ranges: Mapping[str, str]) -> str:
    """Return the Markdown table of the cases that the figures have."""
    head = ("load", "scaled by", *(each.head for each in MEASURES.values()))
    rows = [
        (case.about, words, *(_cell(f"{name}_{twin}_{each}", figures, ranges, case) for each in MEASURES))
        for name, case in CASES.items()
        for twin, words in TWINS.items()
        if f"{name}_{twin}_slow_share" in figures
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _cell(name: str, figures: Mapping[str, float], ranges: Mapping[str, str], case: Case) -> str:
    """Return a figure and its range, `12 % (9 to 14)`; `> 50 s` is what no trial had seen at its end."""
    value, (low, high) = figures[name], map(float, ranges[name].split())
    if name.endswith("_share"):
        return f"{value:.1%} ({100 * low:.1f} to {100 * high:.1f})"
    if name.endswith("_ratio"):
        return f"{value:.2f} ({low:.2f} to {high:.2f})"
    if "_p9" not in name and value >= case.seconds:
        return f"> {case.seconds} s"
    return f"{value:.1f} s" + (f" ({low:.1f} to {high:.1f})" if "_max_" not in name else "")
