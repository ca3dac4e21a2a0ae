"""Options that name a recorded load: Prometheus, and an autoscaler of a live cluster."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.config import checks
from adapter.config.option_fields import list_option, option, text_option
from adapter.config.options import PrometheusOptions
from adapter.config.pflag import FlagType
from adapter.errors import Fault
from adapter.model import timestamps
from fastpath_tools.live.cluster_options import KubeconfigOptions, prometheus_url

_recorded = partial(option, group="Recorded load")
_recorded_list = partial(list_option, group="Recorded load")
_recorded_text = partial(text_option, group="Recorded load")
_live_text = partial(text_option, group="Live cluster", metavar="name")

MOST_SECONDS = 366 * 24 * 3600


def seconds_of(text: str) -> float:
    """Return the seconds of a Prometheus duration such as 14d. ValueError."""
    return timestamps.parse_prometheus_duration(text)


def _length(text: str) -> str:
    try:
        good = 60 <= seconds_of(text) <= MOST_SECONDS
    except ValueError:
        good = False
    return "" if good else "expected a duration from 1m to 366d such as 12h or 14d"


def _step(text: str) -> str:
    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = 0.0
    good = 1 <= seconds <= 3600 and seconds == int(seconds)
    return "" if good else "expected whole seconds from 1s to 1h such as 15s"


def _time(text: str) -> str:
    try:
        if text:
            timestamps.read_instant(text)
    except ValueError:
        return "expected an RFC 3339 time such as 2026-01-31T12:00:00Z"
    return ""


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        return f"expected a regular expression: {error}"
    return ""


@dataclass(frozen=True, kw_only=True)
class RecordedOptions(PrometheusOptions, KubeconfigOptions):
    """Where a load was recorded. Names that `doctor` has too mean the same."""

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
        check=_length,
    )
    until: str = _recorded_text(
        "When the load ends, such as 2026-01-31T12:00:00Z; without it now.", metavar="time", check=_time
    )
    step: str = _recorded(
        FlagType.TEXT,
        "15s",
        "Time between two values of the load: the interval at which Prometheus scrapes.",
        metavar="duration",
        check=_step,
    )
    config: tuple[str, ...] = _recorded_list(
        "Rules file, values of the chart, or a folder of them; can be repeated. With --name the rules are "
        "read from the cluster without it.",
        metavar="path",
        check=checks.rules_paths,
    )
    cache: str = _recorded_text(
        "Folder for what was read from Prometheus: a later run reads only what is missing.", metavar="folder"
    )
    pods: str = _recorded_text(
        "Regular expression of the names of the target's pods; without it the names that a Deployment, "
        "StatefulSet or ReplicaSet gives them.",
        metavar="regex",
        check=_pattern,
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

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if self.name and not self.prometheus_url:
            yield Fault("--name", self.name, "expected --prometheus-url too, to read the load")
        if self.name and not self.namespace:
            yield Fault("--name", self.name, "expected --namespace too")
        if not self.prometheus_url:
            for field in ("last", "until", "step", "cache", "pods", "ready_query"):
                if field in given:
                    flag = field.replace("_", "-")
                    yield Fault(f"--{flag}", str(getattr(self, field)), "expected --prometheus-url too")
