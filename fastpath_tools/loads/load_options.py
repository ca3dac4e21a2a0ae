"""Options that name an autoscaler, its load and its pods: what a simulation and a forecast need."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.config import checks
from adapter.config.option_fields import list_option, option, text_option
from adapter.config.pflag import FlagType
from adapter.errors import Fault
from adapter.model import timestamps
from adapter.model.quantity import read as read_quantity
from fastpath_tools.loads.recorded_options import RecordedOptions

_STARTS = tuple(timestamps.read_instant(f"{year}-01-01T00:00:00Z") for year in (1971, 2200))
"""The first start, and the first one that is too late: local times cannot be computed for all years."""

_RATIOS = (0.001, 1000)

_load_list = partial(list_option, group="Autoscaler and load")
_load_text = partial(text_option, group="Autoscaler and load")
_cluster = partial(option, group="Pods")
_cluster_text = partial(text_option, group="Pods")


def _ratio(number: float) -> str:
    least, most = _RATIOS
    return "" if least <= number <= most else f"expected a number from {least:g} to {most:g}"


def _request(text: str) -> str:
    try:
        good = not text or ((read := read_quantity(text)).sign > 0 and read.has_milli)
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
class LoadOptions(RecordedOptions):
    """Where the autoscaler and its load come from, and what its pods are like."""

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
        check=_start,
    )
    request: str = _load_text(
        "What one pod requests of the resource, such as 500m; a target of type Utilization needs it.",
        metavar="quantity",
        check=_request,
    )
    pod_start: str = _cluster_text(
        "Time from a written count to Ready pods, rounded up to seconds: a duration such as 20s, or a file "
        "with one on each line, which are drawn at random. Required.",
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

    @property
    def needs_load(self) -> bool:
        """Whether the options name an autoscaler and a load at all."""
        return True

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
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
        yield from self._start_faults()
        if "pod_start" not in given:
            expected = "expected the time until a pod is ready such as 20s; it is required"
            yield Fault("--pod-start", "", expected)

    def _start_faults(self) -> Iterator[Fault]:
        if self.schedule and self.load and not self.start:
            expected = "expected when the load begins such as 2026-11-27T07:00:00Z: --schedule needs it"
            yield Fault("--start", "", expected)
        if self.start and self.prometheus_url:
            expected = "cannot be combined with --prometheus-url, which knows when the load begins"
            yield Fault("--start", self.start, expected)
