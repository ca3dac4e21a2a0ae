"""The command line of `fastpath simulate`; completion reads it without importing what simulates."""

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.cli import command_line
from adapter.cli.simulate import budget as budgets
from adapter.cli.simulate.recorded_options import RecordedOptions
from adapter.config import checks
from adapter.config.option_fields import Command, option
from adapter.config.pflag import FlagType
from adapter.errors import Fault
from adapter.model import timestamps
from adapter.model.quantity import read as read_quantity

DEFAULT_POLICIES = ("native", "fast", "boost")

CARRY, DROP = "carry", "drop"

TEXT, JSON, MARKDOWN, SVG = "text", "json", "markdown", "svg"

_MOST_PHASES = 1000

_STARTS = tuple(timestamps.read_instant(f"{year}-01-01T00:00:00Z") for year in (1971, 2200))
"""The first start, and the first one that is too late: local times cannot be computed for all years."""

_load = partial(option, group="Autoscaler and load")
_cluster = partial(option, group="Pods")
_policy = partial(option, group="Policies")


def _phases(count: int) -> str:
    return "" if 1 <= count <= _MOST_PHASES else f"expected 1 to {_MOST_PHASES}"


def _ratio(number: float) -> str:
    return "" if 0 < number < math.inf else "expected a number above 0"


def _request(text: str) -> str:
    try:
        good = not text or read_quantity(text).milli > 0
    except ValueError:
        good = False
    return "" if good else "expected a quantity above 0 such as 500m or 256Mi"


def _start(text: str) -> str:
    try:
        good = not text or _STARTS[0] <= timestamps.read_instant(text) < _STARTS[1]
    except ValueError:
        good = False
    return "" if good else "expected an RFC 3339 time from 1971 to 2199 such as 2026-11-27T07:00:00Z"


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(RecordedOptions):
    autoscaler: str = _load(
        FlagType.TEXT,
        "",
        "File with a HorizontalPodAutoscaler (autoscaling/v2) or a FastPathAutoscaler, YAML or JSON; other "
        "objects in it are skipped. -: standard input.",
        metavar="file",
        check=checks.is_given,
    )
    load: tuple[str, ...] = _load(
        FlagType.ARRAY,
        "",
        "CSV file with the header seconds,load: the total demand on all pods, in the unit of the metric. A "
        "value holds until the next row. With several metrics NAME=FILE, once for each.",
        metavar="file",
        check=lambda files: "" if all(files) else "expected a file, or NAME=FILE",
    )
    schedule: tuple[str, ...] = _load(
        FlagType.ARRAY,
        "",
        "File with FastPathSchedules of the autoscaler, YAML or JSON; can be repeated. fast has their floors "
        "and ceilings, boost their floors; native and fixed have none.",
        metavar="file",
        check=lambda files: "" if all(files) else "expected a file",
    )
    start: str = _load(
        FlagType.TEXT,
        "",
        "When the load of --load begins, such as 2026-11-27T07:00:00Z, for the windows of --schedule.",
        metavar="time",
        check=_start,
    )
    request: str = _load(
        FlagType.TEXT,
        "",
        "What one pod requests of the resource, such as 500m; a target of type Utilization needs it.",
        metavar="quantity",
        check=_request,
    )
    pod_start: str = _cluster(
        FlagType.TEXT,
        "",
        "Time from a written count to Ready pods, rounded up to seconds: a duration such as 20s, or a file "
        "with one on each line, which are drawn with --seed. Required.",
        metavar="duration|file",
        check=checks.is_given,
    )
    capacity_ratio: float = _cluster(
        FlagType.FLOAT,
        "1.0",
        "How much a pod can serve, as a multiple of its target.",
        metavar="ratio",
        check=_ratio,
    )
    backlog: str = _cluster(
        FlagType.TEXT,
        CARRY,
        "What becomes of load that the pods cannot serve: carry, it waits, or drop, it is lost.",
        metavar="word",
        choices=(CARRY, DROP),
    )
    policy: tuple[str, ...] = _policy(
        FlagType.ARRAY,
        "",
        "Autoscaler to simulate, as NAME[:key=value,...]. native: the HPA and its controller (scrape=15s, "
        "window=1m, sync=15s); fast: the fast-scaler (scrape=1s, window=5s, tick=1s); boost: the HPA with "
        "raises of the fast-scaler (keys of native, fastScrape=1s, fastWindow=5s, tick=1s); "
        "fixed:replicas=N. All but fixed take target, minReplicas, maxReplicas and behavior=FILE. Can be "
        f"repeated; without it {', '.join(DEFAULT_POLICIES)}.",
        metavar="policy",
    )
    phases: int = _policy(
        FlagType.INT,
        "8",
        "How many times each policy runs, each time with other seconds of scrapes and syncs. The figures are "
        "means.",
        check=_phases,
    )
    seed: int = _policy(
        FlagType.INT,
        "0",
        "Seed of the drawn phases and start-up times. The same seed gives the same output.",
    )
    suggest: bool = _policy(
        FlagType.BOOL,
        "false",
        "Sweep mode, target, stabilization window and scaling policies, and print the Pareto front of "
        "shortage and pod seconds, compared to the first policy.",
    )
    budget: str = option(
        FlagType.TEXT,
        "",
        "What the last policy may need, compared to the first, such as shortage<=5%,pods<=110%: at most 5 % "
        "of its shortage and 110 % of its pod seconds. The exit status is 3 if it needs more.",
        group="Output",
        metavar="limits",
        check=budgets.check_budget,
    )
    output: str = command_line.output(
        TEXT,
        JSON,
        MARKDOWN,
        SVG,
        help_="text, json, markdown for a pull request, or svg, a picture of the first phase.",
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if self.replay:
            return
        if "autoscaler" not in given and not self.name:
            expected = "expected a file with the autoscaler, or --namespace and --name for one of a cluster"
            yield Fault("--autoscaler", "", expected)
        elif "autoscaler" in given and self.name:
            yield Fault("--autoscaler", self.autoscaler, "cannot be combined with --name")
        if "load" not in given and not self.prometheus_url:
            expected = "expected a CSV file with the header seconds,load, or --prometheus-url"
            yield Fault("--load", "", expected)
        elif "load" in given and self.prometheus_url:
            yield Fault("--load", self.load[0], "cannot be combined with --prometheus-url")
        yield from self._start_faults()
        if "pod_start" not in given:
            expected = "expected the time until a pod is ready such as 20s; it is required"
            yield Fault("--pod-start", "", expected)
        if self.suggest and self.output == SVG:
            yield Fault("--suggest", "", "cannot be combined with -o svg")
        if self.suggest and self.budget:
            yield Fault("--suggest", "", "cannot be combined with --budget")

    def _start_faults(self) -> Iterator[Fault]:
        if self.schedule and self.load and not self.start:
            expected = "expected when the load begins such as 2026-11-27T07:00:00Z: --schedule needs it"
            yield Fault("--start", "", expected)
        if self.start and not self.schedule:
            yield Fault("--start", self.start, "expected --schedule too")
        elif self.start and self.prometheus_url:
            expected = "cannot be combined with --prometheus-url, which knows when the load begins"
            yield Fault("--start", self.start, expected)


COMMAND = Command(
    verb="simulate",
    options=SimulateOptions,
    usage="--autoscaler=FILE --load=FILE --pod-start=DURATION [flags]",
    about="""\
Shows what an autoscaler would have done with a load, and what another would have done better:
missing pods, pods too many, and pod seconds of each policy. The decisions are those of the real
autoscalers, with their windows and policies, second by second. docs/guides/simulate.md has an
example.

The load is a CSV file, or the history of the metric in Prometheus. A cluster is only asked with
--name, and nothing is changed in it. With --replay the decisions of a live scaler are made again.

Exit status: 0 when it is done; 1 when a server cannot be asked, or a replayed decision differs; 2
when the command line or a file is wrong; 3 when the limits of --budget are not kept.
""",
)
