"""The command line of `fastpath forecast`; completion reads it without importing what forecasts."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import msgspec

from adapter.cli import command_line
from adapter.config.option_fields import Command, list_option, text_option
from adapter.errors import Fault
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling import limits
from adapter.model.autoscaling.forecast import ForecastSpec
from fastpath_forecast.simulate.policies import BOOST, FAST
from fastpath_tools.live.cluster_options import NAMESPACE, ScalerServiceOptions
from fastpath_tools.loads.load_options import LoadOptions

TEXT, JSON, SVG = "text", "json", "svg"

_EXPECTED = {
    "history": "expected a duration from 7d to 35d in days or hours such as 14d",
    "horizon": "expected Auto, or a duration from 1s to 1h such as 40s",
    "max_extra": "expected a share from 1% to 100% such as 15%",
    "min_gain": "expected a share from 1% to 100% such as 20%",
    "time_zone": "expected a time zone of the tz database such as Europe/Berlin",
    "holidays": "expected dates such as 2026-12-25",
}
"""The fields of a `ForecastSpec` that a flag sets, and what its value has to be."""

_LOAD_ONLY = frozenset(
    {
        *("autoscaler", "load", "schedule", "start", "request", "pod_start", "capacity_ratio"),
        *("prometheus_url", "name", "policy"),
        *_EXPECTED,
    }
)
_SCALER_ONLY = frozenset({"server", "token_file", "ca_file", "tls_server_name", "lease_name", "port"})
_FLAGS = {"holidays": "holiday"}
"""Fields whose flag has another name."""


def _check(field: str) -> Callable[[str | tuple[str, ...]], str]:
    """Return the check of the value of a field of a `ForecastSpec`."""

    def check(value: str | tuple[str, ...]) -> str:
        spec = msgspec.structs.replace(ForecastSpec(), **{field: value})
        wrong = any(limits.check(spec, "")) or any(forecast_spec.check_zone(spec))
        return _EXPECTED[field] if wrong else ""

    return check


def _setting(field: str, help_: str, metavar: str) -> str:
    """Return the option for a field of a `ForecastSpec`; without it the autoscaler or the default counts."""
    help_ += f"; without it that of the autoscaler, else {getattr(_DEFAULTS, field)}."
    text: str = text_option(help_, metavar=metavar, group="Forecast", check=_check(field))
    return text


_DEFAULTS = ForecastSpec()


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(ScalerServiceOptions, LoadOptions):
    """An autoscaler with its load, or the name of one whose card the running scaler shows."""

    namespace: str = text_option(
        f"With NAMESPACE/NAME that of Fastpath, of the Lease and of the Pod, {NAMESPACE} by default. "
        "Otherwise the namespace of the autoscaler; without it that of the file, else default.",
        metavar="name",
        group="Live cluster",
    )
    policy: str = text_option(
        "How the autoscaler runs: fast, by the fast-scaler, or boost, an HPA with raises of the fast-scaler. "
        "Without it a FastPathAutoscaler is fast and a HorizontalPodAutoscaler boost.",
        metavar="policy",
        choices=(FAST, BOOST),
        group="Forecast",
    )
    history: str = _setting("history", "How much of the past to look at", "duration")
    horizon: str = _setting(
        "horizon",
        "How far ahead a floor looks, or Auto: as long as pods take to start, by the 95th percentile",
        "duration",
    )
    max_extra: str = _setting("max_extra", "How many more pods a forecast may cost", "share")
    min_gain: str = _setting("min_gain", "How much of the shortage a forecast has to remove", "share")
    time_zone: str = _setting("time_zone", "Time zone in which days repeat, such as Europe/Berlin", "zone")
    holidays: tuple[str, ...] = list_option(
        "Local date that is like no other day, such as 2026-12-25; can be repeated. Without it those of the "
        "autoscaler.",
        metavar="date",
        name="holiday",
        group="Forecast",
        check=_check("holidays"),
    )
    output: str = command_line.output(TEXT, JSON, SVG, help_="text, json, or svg, a picture.")

    @property
    def needs_load(self) -> bool:
        return not self.autoscalers

    def spec(self, asked: ForecastSpec | None) -> ForecastSpec:
        """Return what is `asked` of a forecast, with the flags that say something else."""
        changed = {field: value for field in _EXPECTED if (value := getattr(self, field))}
        return msgspec.structs.replace(asked or _DEFAULTS, **changed)

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if self.needs_load:
            for field in sorted(given & _SCALER_ONLY):
                yield Fault(_flag(field), "", "expected NAMESPACE/NAME too")
            if self.load and not self.start and self.holidays:
                expected = "expected when the load begins such as 2026-11-27T07:00:00Z: --holiday needs it"
                yield Fault("--start", "", expected)
            return
        yield from self.name_faults()
        for field in sorted(given & _LOAD_ONLY):
            yield Fault(_flag(field), "", "cannot be combined with NAMESPACE/NAME")


def _flag(field: str) -> str:
    return f"--{_FLAGS.get(field, field).replace('_', '-')}"


COMMAND = Command(
    verb="forecast",
    options=ForecastOptions,
    usage="NAMESPACE/NAME | --autoscaler=FILE --load=FILE --pod-start=DURATION [flags]",
    about="""\
Shows whether a forecast of the demand would help an autoscaler: what each forecast would have done to
its decisions in the last 7 days, missing pods against more pods, which one may act, and the next hours.

With NAMESPACE/NAME it shows the card of a running scaler. With --load or --prometheus-url it makes the
card from a load, as `fastpath simulate` reads it. docs/guides/forecasts.md has an example.

Exit status: 0 when it is done, also without a verdict; 1 when a server cannot be asked; 2 when the
command line or a file is wrong.
""",
)
