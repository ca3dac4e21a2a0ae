"""The command line of `fastpath check`.

Its own options, and those of `fastpath serve` about rules and connections. It accepts every flag of `fastpath
serve`, so that the command line of a server can be checked.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from adapter.cli import command_line
from adapter.config import checks
from adapter.config.option_fields import Command, arguments, flags_of, option, switch, text_option
from adapter.config.options import SERVE, ClusterOptions, ProcessOptions, PrometheusOptions, RulesOptions
from adapter.config.pflag import FlagType
from adapter.errors import Fault
from fastpath_tools.live.cluster_options import prometheus_url

_checking = partial(option, group="Checking")
_checking_switch = partial(switch, group="Checking")
_checking_text = partial(text_option, group="Checking")


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ProcessOptions, ClusterOptions, PrometheusOptions, RulesOptions):
    """What to check and how; `config` holds all files."""

    files: tuple[str, ...] = arguments(are_files=True)
    why: str = _checking_text(
        "Explain step by step why this metric is served or is not. Needs --prometheus-url.", metavar="metric"
    )
    object: str = _checking_text(
        "With --why: the object whose value is wanted, as KIND/NAMESPACE/NAME, or KIND/NAME for a kind "
        "without namespaces; NAME may be * for all objects (needs --lister-kubeconfig). For an external "
        "metric: the namespace of the autoscaler.",
        metavar="object",
    )
    selector: str = _checking_text(
        "With --object: a label selector. It selects objects where NAME is *, and series of an external "
        "metric.",
        metavar="selector",
    )
    metric_selector: str = _checking_text(
        "With --object: the metric selector of a custom metric.", metavar="selector"
    )
    scrape_interval: float = _checking(
        FlagType.DURATION,
        "15s",
        "How often your Prometheus scrapes, for the warnings about windows.",
        check=checks.above_zero,
    )
    strict: bool = _checking_switch("Exit with status 2 for warnings too, as for faults.")
    print_config: bool = _checking_switch(
        "Print the rules file that the prometheus-community chart makes of its values, and nothing else."
    )
    output: str = command_line.output("text", "json", help_="text, or json for one JSON document.")
    prometheus_url: str = prometheus_url(
        "Base URL of Prometheus or a compatible engine, as it is reached from here. Without it Prometheus is "
        "not asked."
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        if not self.files and not self.config:
            expected = "missing: expected rules files, chart values, folders of them, or - for standard input"
            yield Fault("FILE", "", expected)
        yield from super().faults(given)
        if self.why and not self.prometheus_url:
            yield Fault("--why", self.why, "expected --prometheus-url too, to read the series")
        if self.object and not self.why:
            yield Fault("--object", self.object, "expected --why METRIC too")
        for name, text in (("--selector", self.selector), ("--metric-selector", self.metric_selector)):
            if text and not self.object:
                yield Fault(name, text, "expected --object too")
        if self.strict and (self.why or self.print_config):
            other = "--why" if self.why else "--print-config"
            yield Fault("--strict", "", f"cannot be combined with {other}, which prints no warnings")
        if self.print_config and self.output != "text":
            yield Fault("--output", self.output, "cannot be combined with --print-config")

    def resolved(self) -> Self:
        options = super().resolved()
        return replace(options, config=(*options.files, *options.config))


_SHOWN = frozenset({"metrics-relist-interval", "metrics-max-age", "discovery-max-bytes"})

COMMAND = Command(
    verb="check",
    options=CheckOptions,
    usage="FILE... [flags]",
    about="""\
Prints what each rule asks Prometheus and what it serves, and everything that is wrong with it. FILE
is a rules file, the values of the prometheus-community chart, a manifest of autoscalers, whose
targets are compared with the rules, and of FastPathSchedules, a folder of them, or - for standard
input.

Exit status: 0 for files without a fault, also with warnings unless --strict is given; with --why,
when an autoscaler gets a value. 1 when Prometheus or the API server cannot be asked; with --why,
when an autoscaler gets no value. 2 for faults in a file or on the command line. Objects that you may
not list are named, not looked at, and no failure.

With --prometheus-url it reads the series and runs the queries; with --lister-kubeconfig the kinds
of objects are those of the cluster, else the built-in ones. It accepts all flags of `fastpath
serve`.
""",
    hidden=frozenset(flags_of(RulesOptions)) - _SHOWN | frozenset(flags_of(ProcessOptions)),
    unread=tuple(flag for name, flag in SERVE.table.items() if name not in flags_of(CheckOptions)),
)
