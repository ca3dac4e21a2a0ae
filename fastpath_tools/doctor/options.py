"""The command line of `fastpath doctor`; completion reads it without importing what asks a cluster."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from adapter.cli import command_line
from adapter.config import checks
from adapter.config.option_fields import Command, arguments, list_option, option, replaced
from adapter.config.options import PrometheusOptions
from adapter.config.pflag import FlagType
from adapter.config.yaml import reader
from adapter.errors import Fault
from fastpath_tools.live.cluster_options import KubeconfigOptions, ServiceOptions, prometheus_url


@dataclass(frozen=True, kw_only=True)
class ExaminationOptions(PrometheusOptions, ServiceOptions, KubeconfigOptions):
    """What is examined, and from what."""

    place: tuple[str, ...] = arguments(are_autoscalers=True)
    lease_name: str = option(
        FlagType.TEXT,
        "fastpath-scaler",
        "What the names of the Leases of Fastpath's scaler begin with.",
        group="Service",
        metavar="name",
        check=lambda name: "" if name else "expected a name",
    )
    horizontal_pod_autoscaler_sync_period: float = option(
        FlagType.DURATION,
        "0s",
        "How often the HPA controller decides. 0s: as the Pod of kube-controller-manager says; if that "
        "cannot be seen, 15s, Kubernetes' default.",
        group="HPA controller",
        check=checks.not_negative,
    )
    config: tuple[str, ...] = list_option(
        "Rules file, or a folder of them; can be repeated. Without it the rules are read from the ConfigMap "
        "of the server behind the metrics APIs.",
        group="Rules",
        metavar="path",
        check=checks.rules_paths,
    )
    prometheus_url: str = prometheus_url(
        "Base URL of Prometheus or a compatible engine, as it is reached from here. Without it Prometheus is "
        "not asked, and the hops scrape and engine stay unknown."
    )

    @property
    def target(self) -> tuple[str, str]:
        """Namespace and name of the autoscalers to examine, "" for all."""
        namespace, _, name = "".join(self.place).partition("/")
        return namespace, name

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if self.place:
            namespace, slash, name = self.place[0].partition("/")
            if len(self.place) > 1 or not namespace or (slash and not name) or "/" in name:
                expected = "expected one autoscaler such as shop/web, a namespace, or nothing for all"
                yield Fault("NAMESPACE/NAME", reader.shown_text(" ".join(self.place)), expected)


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(ExaminationOptions):
    output: str = command_line.output(
        "text", "json", help_="text, or json: for one autoscaler an object, else a list."
    )


COMMAND = Command(
    verb="doctor",
    options=DoctorOptions,
    usage="[NAMESPACE[/NAME]] [flags]",
    about="""\
Follows a HorizontalPodAutoscaler from the load to ready pods: how long each hop takes, what is
wrong, and the one change that helps most. Of a FastPathAutoscaler it shows what its conditions and
its target say; `fastpath explain` has its decisions. Without a name it lists all autoscalers, one
line each. It changes nothing, and names what you may not read.

Exit status: 0 without a fault (a warning is not a fault), 1 for faults or when the cluster cannot
be asked, 2 when the command line or a file is wrong.

A hop is unknown if its source is not given: the hops scrape and window need the rules, from the
ConfigMap of the server behind the metrics APIs or from --config; scrape and engine need
--prometheus-url, with the query parameters that the server is given. For CPU and memory it reads at
most two pods, at ports that may expose metrics, through the API server (get pods/proxy). Whether a
boosted HPA uses what they expose is asked of the scaler through kubectl port-forward.
""",
    deprecated=(replaced("json", "output", "json"),),
)
