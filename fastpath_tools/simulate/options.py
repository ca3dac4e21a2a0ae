"""The command line of `fastpath simulate`; completion reads it without importing what simulates."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.cli import command_line
from adapter.config import checks
from adapter.config.option_fields import Command, list_option, option, switch, text_option
from adapter.config.pflag import FlagType
from adapter.errors import Fault
from fastpath_tools.loads.load_options import LoadOptions
from fastpath_tools.simulate import results

DEFAULT_POLICIES = ("native", "fast", "boost")

CARRY, DROP = "carry", "drop"

TEXT, JSON, MARKDOWN, SVG = "text", "json", "markdown", "svg"

_policy = partial(option, group="Policies")
_policy_switch = partial(switch, group="Policies")
_policy_list = partial(list_option, group="Policies")


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(LoadOptions):
    backlog: str = option(
        FlagType.TEXT,
        CARRY,
        "What becomes of load that the pods cannot serve: carry, it waits, or drop, it is lost.",
        metavar="word",
        choices=(CARRY, DROP),
        group="Pods",
    )
    load_spread: float = option(
        FlagType.FLOAT,
        "0",
        "How unevenly the load is spread over the pods: the standard deviation of their loads divided by the "
        "mean. A pod keeps its share, which is drawn with --seed. 0 is even.",
        metavar="ratio",
        group="Pods",
        check=lambda ratio: "" if 0 <= ratio <= 10 else "expected a number from 0 to 10",
    )
    policy: tuple[str, ...] = _policy_list(
        "Autoscaler to simulate, as NAME[:key=value,...]. native: the HPA and its controller (scrape=15s, "
        "window=1m, sync=15s); fast: the fast-scaler (scrape=1s, window=5s, tick=1s, and slowScrape=15s, "
        "slowWindow=1m for CPU and memory of the metrics API); boost: the HPA with raises of the "
        "fast-scaler (keys of native, fastScrape=1s, fastWindow=5s, tick=1s); fixed:replicas=N; to "
        "compare with, keda: the HPA on metrics that KEDA polls (keys of native, poll=30s); kpa: the "
        "autoscaler of Knative (window=1m, panicWindow=6s, panicThreshold=200, maxScaleUp=1000, "
        "maxScaleDown=2, scaleDownDelay=0s, tick=2s); persistence: the last value times x (x=1, window=1m, "
        "sync=1m). All but fixed take target, minReplicas and maxReplicas; native, fast, boost and keda "
        "also behavior=FILE. Can be repeated; without it "
        f"{', '.join(DEFAULT_POLICIES)}.",
        metavar="policy",
    )
    phases: int = _policy(
        FlagType.INT,
        "8",
        "How many times each policy runs, each time with other seconds of scrapes and syncs. The figures are "
        "means.",
        check=lambda count: "" if 1 <= count <= 1000 else "expected 1 to 1000",
    )
    seed: int = _policy(
        FlagType.INT, "0", "Seed of the drawn phases and start-up times. The same seed gives the same output."
    )
    suggest: bool = _policy_switch(
        "Sweep mode, target, stabilization window and scaling policies, and print the Pareto front of "
        "shortage and pod seconds, compared to the first policy."
    )
    baseline: str = _policy(
        FlagType.TEXT,
        "",
        "Policy that the elastic speed-up compares with, as --policy has it. Without it native, if it is one "
        "of them.",
        metavar="policy",
    )
    forecast: bool = _policy_switch(
        "Run fast and boost also with the floors that a forecast would have had, as the autoscaler asks for "
        "it. A verdict needs 7 days of load."
    )
    budget: str = text_option(
        "What the last policy may need, compared to the first, such as shortage<=5%,pods<=110%: at most 5 % "
        "of its shortage and 110 % of its pod seconds. The exit status is 3 if it needs more.",
        group="Output",
        metavar="limits",
        check=results.check_budget,
    )
    output: str = command_line.output(
        TEXT,
        JSON,
        MARKDOWN,
        SVG,
        help_="text, json, markdown for a pull request, or svg, a picture of the first phase.",
    )
    replay: str = text_option(
        "Make the decisions of a live scaler again and compare the counts. The file is what `fastpath "
        "explain -o json` printed of a scaler with --journal-records.",
        group="Replay",
        metavar="file",
        check=checks.is_given,
    )

    @property
    def needs_load(self) -> bool:
        return not self.replay

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if self.replay:
            return
        others = {"-o svg": self.output == SVG, "--forecast": self.forecast, "--budget": bool(self.budget)}
        for other, is_given in others.items():
            if self.suggest and is_given:
                yield Fault("--suggest", "", f"cannot be combined with {other}")


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
