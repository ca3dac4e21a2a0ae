"""Options that name an autoscaler, its load and its pods: what a simulation and a forecast need.

The load is a CSV file, or was recorded: by Prometheus, of an autoscaler of a file or of a live cluster.
"""

import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.config import checks
from adapter.config.option_fields import list_option, option, text_option
from adapter.config.options import PrometheusOptions
from adapter.config.pflag import FlagType
from adapter.errors import Fault
from adapter.model import quantity
from adapter.model.quantity import Quantity
from adapter.model.timestamps import parse_prometheus_duration, read_instant
from fastpath_tools.live.cluster_options import KubeconfigOptions, prometheus_url

_STARTS = tuple(read_instant(f"{year}-01-01T00:00:00Z") for year in (1971, 2200))
"""The first start, and the first one that is too late: local times cannot be computed for all years."""

_load_list = partial(list_option, group="Autoscaler and load")
_load_text = partial(text_option, group="Autoscaler and load")
_pods = partial(option, group="Pods")
_recorded = partial(option, group="Recorded load")
_recorded_text = partial(text_option, group="Recorded load")
_live_text = partial(text_option, group="Live cluster", metavar="name")


def _check(expected: str, is_good: Callable[[str], bool]) -> Callable[[str], str]:
    """Return the check of a text; one that `is_good` cannot read (ValueError) is not good."""

    def check(text: str) -> str:
        try:
            return "" if is_good(text) else expected
        except ValueError:
            return expected

    return check


def _is_step(text: str) -> bool:
    seconds = parse_prometheus_duration(text)
    return 1 <= seconds <= 3600 and seconds == int(seconds)


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        return f"expected a regular expression: {error}"
    return ""


@dataclass(frozen=True, kw_only=True)
class LoadOptions(PrometheusOptions, KubeconfigOptions):
    """Where the autoscaler and its load come from, and what its pods are like.

    Names that `doctor` has too mean the same.
    """

    prometheus_url: str = prometheus_url(
        "Read the load from this Prometheus or compatible engine, with the query of the rule that makes the "
        "metric."
    )
    prometheus_timeout: float = option(
        FlagType.DURATION,
        "1m0s",
        "Maximum time of one query to Prometheus; a history is read with many.",
        group="Prometheus",
        check=checks.above_zero,
    )
    last: str = _recorded(
        FlagType.TEXT,
        "14d",
        "How much of the past to read, as a Prometheus duration.",
        metavar="duration",
        check=_check(
            "expected a duration from 1m to 366d such as 12h or 14d",
            lambda text: 60 <= parse_prometheus_duration(text) <= 366 * 24 * 3600,
        ),
    )
    until: str = _recorded_text(
        "When the load ends, such as 2026-01-31T12:00:00Z; without it now.",
        metavar="time",
        check=_check(
            "expected an RFC 3339 time such as 2026-01-31T12:00:00Z",
            lambda text: not text or read_instant(text) is not None,
        ),
    )
    step: str = _recorded(
        FlagType.TEXT,
        "15s",
        "Time between two values of the load: the interval at which Prometheus scrapes.",
        metavar="duration",
        check=_check("expected whole seconds from 1s to 1h such as 15s", _is_step),
    )
    config: tuple[str, ...] = list_option(
        "Rules file, values of the chart, or a folder of them; can be repeated. With --name the rules are "
        "read from the cluster without it.",
        metavar="path",
        group="Recorded load",
        check=checks.rules_paths,
    )
    cache: str = _recorded_text(
        "Folder for what was read from Prometheus: a later run reads only what is missing.", metavar="folder"
    )
    pods: str = _recorded_text(
        "Regular expression of the names of the target's pods; without it the names that a Deployment, "
        "StatefulSet or ReplicaSet gives them.",
        metavar="regex",
        check=_check_pattern,
    )
    ready_query: str = _recorded_text(
        "Query for the number of ready pods, for targets of type Value; without it the metric "
        "kube_pod_status_ready of kube-state-metrics.",
        metavar="promql",
    )
    name: str = _live_text(
        "Read this HorizontalPodAutoscaler or FastPathAutoscaler of a cluster, in place of --autoscaler. "
        "Nothing has to be installed in the cluster, and nothing is changed."
    )
    namespace: str = _live_text("Namespace of the autoscaler; without it that of the file, else default.")

    autoscaler: str = _load_text(
        "File with a HorizontalPodAutoscaler (autoscaling/v2) or a FastPathAutoscaler, YAML or JSON; other "
        "objects in it are skipped. -: standard input.",
        metavar="file",
        check=checks.is_given,
    )
    load: tuple[str, ...] = _load_list(
        "CSV file with the header seconds,load: the total demand on all pods, in the unit of the metric. A "
        "value holds until the next row. With several metrics NAME=FILE, once for each.",
        metavar="file",
        check=lambda files: "" if all(files) else "expected a file, or NAME=FILE",
    )
    schedule: tuple[str, ...] = _load_list(
        "File with FastPathSchedules of the autoscaler, YAML or JSON; can be repeated. fast has their floors "
        "and ceilings, boost their floors, and an HPA without boost none.",
        metavar="file",
        check=lambda files: "" if all(files) else "expected a file",
    )
    start: str = _load_text(
        "When the load of --load begins, such as 2026-11-27T07:00:00Z: windows of --schedule, and days of a "
        "forecast, are local times. No effect without a schedule or a forecast.",
        metavar="time",
        check=_check(
            "expected an RFC 3339 time from 1971 to 2199 such as 2026-11-27T07:00:00Z",
            lambda text: not text or _STARTS[0] <= read_instant(text) < _STARTS[1],
        ),
    )
    request: str = _load_text(
        "What one pod requests of the resource, such as 500m; a target of type Utilization needs it.",
        metavar="quantity",
        check=_check(
            "expected a quantity above 0 such as 500m or 256Mi",
            lambda text: not text or ((request := quantity.read(text)).sign > 0 and request.has_milli),
        ),
    )
    pod_start: str = text_option(
        "Time from a written count to Ready pods, rounded up to seconds: a duration such as 20s, or a file "
        "with one on each line, which are drawn at random. Required.",
        metavar="duration|file",
        group="Pods",
        check=checks.is_given,
    )
    capacity_ratio: float = _pods(
        FlagType.FLOAT,
        "1.0",
        "How much a pod can serve, as a multiple of its target.",
        metavar="ratio",
        check=lambda ratio: "" if 0.001 <= ratio <= 1000 else "expected a number from 0.001 to 1000",
    )

    @property
    def needs_load(self) -> bool:
        """Whether the options name an autoscaler and a load at all."""
        return True

    @property
    def requested(self) -> Quantity | None:
        """What one pod requests of the resource, None if it is not given."""
        return quantity.read(self.request) if self.request else None

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        yield from self._recorded_faults(given)
        if not self.needs_load:
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
        if self.schedule and self.load and not self.start:
            expected = "expected when the load begins such as 2026-11-27T07:00:00Z: --schedule needs it"
            yield Fault("--start", "", expected)
        if self.start and self.prometheus_url:
            expected = "cannot be combined with --prometheus-url, which knows when the load begins"
            yield Fault("--start", self.start, expected)
        if "pod_start" not in given:
            expected = "expected the time until a pod is ready such as 20s; it is required"
            yield Fault("--pod-start", "", expected)

    def _recorded_faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        if self.name and not self.prometheus_url:
            yield Fault("--name", self.name, "expected --prometheus-url too, to read the load")
        if self.name and not self.namespace:
            yield Fault("--name", self.name, "expected --namespace too")
        if not self.prometheus_url:
            for field in ("last", "until", "step", "cache", "pods", "ready_query"):
                if field in given:
                    flag = field.replace("_", "-")
                    yield Fault(f"--{flag}", str(getattr(self, field)), "expected --prometheus-url too")
