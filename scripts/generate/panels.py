"""What the Grafana dashboards show: their panels, most important first. `dashboards` makes JSON of them.

A query names metrics by their attribute in `adapter.telemetry.metrics.Monitoring`, as ``<demand>``, so it
cannot name one that does not exist. `about` says what a panel means and what to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

OF = "by (kind, namespace, name)"
ONE = 'kind="$kind", namespace="$namespace", name="$name"'
PODS = 'job=~"$job", instance=~"$instance"'
METRICS_API = f'{PODS}, group!=""'
"""Without /metrics, /readyz and discovery, whose requests have no group."""


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: `about` says what it means and what to do.

    `red` is the value from which a stat is red (below which, if `red_below`).
    """

    title: str
    about: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    red: float | None = None
    red_below: bool = False
    minimum: float | None = 0
    dashed: Sequence[str] = ()
    names: bool = False
    """Whether a stat shows the names of the series rather than their values."""
    columns: Sequence[tuple[str, str]] = ()
    """Of a table: title and unit of each query's column."""
    stacked: bool = False


@dataclass(frozen=True)
class Variable:
    name: str
    query: str
    label: str
    several: bool = False


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    about: str
    variables: Sequence[Variable]
    panels: Sequence[Panel] = field(default_factory=tuple)


def stat(title: str, about: str, expr: str, legend: str = "", **more: Any) -> Panel:
    return Panel(title, about, [Query(expr, legend)], "stat", **({"width": 4, "height": 4} | more))


# --- the autoscalers of the cluster ------------------------------------------------------------------------

_IN = 'namespace=~"$namespace"'
_AGE = f"time() - max {OF} (<value_time>{{{_IN}}})"

CLUSTER = Dashboard(
    "cluster",
    "Fastpath / Autoscalers",
    "All FastPathAutoscalers and boosted or advised HorizontalPodAutoscalers.",
    [Variable("namespace", "label_values(<min_replicas>, namespace)", "Namespace", several=True)],
    [
        stat(
            "At maximum",
            "Autoscalers whose metrics ask for more than maxReplicas. Raise maxReplicas or reduce the load.",
            f"count(max {OF} (<demand>{{{_IN}}}) > max {OF} (<max_replicas>{{{_IN}}})) or vector(0)",
            red=1,
        ),
        stat(
            "Without a value",
            "Autoscalers with a metric that has no value. They do not scale down. fastpath explain names it.",
            f"count(max {OF} (<absent_metrics>{{{_IN}}}) > 0) or vector(0)",
            red=1,
        ),
        stat(
            "Old values",
            "Autoscalers whose oldest value is more than three minutes old. Look for the slow source.",
            f"count({_AGE} > 180) or vector(0)",
            red=1,
        ),
        stat(
            "Demoted",
            "HPAs that are only advised because another client reverted raises. fastpath explain names it.",
            f"sum(max {OF} (<boost_demoted>{{{_IN}}})) or vector(0)",
            red=1,
        ),
        stat(
            "Slices without an owner",
            "Slices whose autoscalers no pod scales. Above 0 for more than the lease time: look at the log "
            "of the scaler.",
            "sum(64 - sum by (namespace, name) (<slices>))",
            red=1,
        ),
        stat(
            "Autoscalers",
            "Autoscalers that the pods of the scaler run together, in all namespaces.",
            "sum(<scaler_autoscalers>)",
        ),
        Panel(
            "Autoscalers",
            "One line for each autoscaler, the largest demand for its maximum first. Follow the name to see "
            "one alone.",
            [
                Query(f"max {OF} (<demand>{{{_IN}}}) / max {OF} (<max_replicas>{{{_IN}}})"),
                Query(f"max {OF} (<demand>{{{_IN}}})"),
                Query(f"max {OF} (<ready_pods>{{{_IN}}})"),
                Query(f"max {OF} (<max_replicas>{{{_IN}}})"),
                Query(_AGE),
                Query(f"sum {OF} (increase(<direction_changes>{{{_IN}}}[1h]))"),
                Query(f"max by (kind, namespace, name, reason) (<reason>{{{_IN}}})"),
            ],
            "table",
            width=24,
            height=10,
            columns=[
                ("Demand of maximum", "percentunit"),
                ("Demand", "short"),
                ("Ready", "short"),
                ("Maximum", "short"),
                ("Age of values", "s"),
                ("Changes of direction in 1 h", "short"),
                ("", ""),
            ],
        ),
        Panel(
            "Demand of maximum, top 10",
            "Above 100 % the metrics ask for more replicas than maxReplicas allows.",
            [
                Query(
                    f"topk(10, max {OF} (<demand>{{{_IN}}}) / max {OF} (<max_replicas>{{{_IN}}}))",
                    "{{namespace}}/{{name}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            "Age of values, top 10",
            "An autoscaler cannot be faster than its values. A line that rises has no new values.",
            [Query(f"topk(10, {_AGE})", "{{namespace}}/{{name}}")],
            unit="s",
        ),
        Panel(
            "Changes of direction within an hour, top 10",
            "A workload that changes direction all the time needs a longer stabilization window or another "
            "metric.",
            [
                Query(
                    f"topk(10, sum {OF} (increase(<direction_changes>{{{_IN}}}[1h])))",
                    "{{namespace}}/{{name}}",
                )
            ],
        ),
        Panel(
            "Why autoscalers are where they are",
            "The number of autoscalers by the reason of their last decision. A reason that begins with "
            "Failed is a fault; TooManyReplicas means at maxReplicas.",
            [
                Query(
                    f"count by (reason) (max by (kind, namespace, name, reason) (<reason>{{{_IN}}}))",
                    "{{reason}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "From the load to the Scale",
            "Where the seconds of a scale go, in the median and in one of a hundred. load-to-sample is long "
            "if the source is scraped rarely, sample-to-decision if values arrive late, decision-to-write if "
            "the API server is slow.",
            [
                Query(
                    f"histogram_quantile({quantile}, sum by (le, stage) "
                    "(rate(<scaler_stages>_bucket[$__rate_interval])))",
                    f"{{{{stage}}}} {name}",
                )
                for quantile, name in ((0.5, "median"), (0.99, "99 %"))
            ],
            unit="s",
        ),
        Panel(
            "Writes",
            "Writes of the scaler. Conflicts are repeated; refused means that a right is missing or an "
            "admission webhook says no.",
            [Query("sum by (type, outcome) (rate(<writes>[$__rate_interval]))", "{{type}} {{outcome}}")],
            unit="ops",
        ),
        Panel(
            "Slices of each scaler",
            "Pods own the same number of slices, within one. A pod that stays below the others cannot write "
            "Leases.",
            [Query("<slices>", "{{instance}}")],
            width=8,
            stacked=True,
        ),
        Panel(
            "Autoscalers of each scaler",
            "A line far above the others has a namespace with most of the autoscalers. A namespace is never "
            "divided among pods.",
            [Query("<scaler_autoscalers> and on (job, instance) <slices>", "{{instance}}")],
            width=8,
        ),
        Panel(
            "Late decisions of each scaler, 99 %",
            "How long after it was due a decision is made. If all lines are high, run more replicas; if one "
            "is, its pod has too little CPU or too large a namespace.",
            [
                Query(
                    "histogram_quantile(0.99, sum by (le, instance) "
                    "(rate(<scaler_lag>_bucket[$__rate_interval]))) "
                    "and on (instance) <slices>",
                    "{{instance}}",
                )
            ],
            unit="s",
            width=8,
        ),
    ],
)

# --- one autoscaler ----------------------------------------------------------------------------------------

_DESIRED = f"max(<desired_replicas>{{{ONE}}}) or max(<recommended_replicas>{{{ONE}}})"
_CURRENT = (
    f"max(<current_replicas>{{{ONE}}}) or "
    f"max(<recommended_replicas>{{{ONE}}} - <recommended_difference>{{{ONE}}})"
)
_OWN_AGE = f"time() - max(<value_time>{{{ONE}}})"

AUTOSCALER = Dashboard(
    "autoscaler",
    "Fastpath / Autoscaler",
    "One autoscaler: what its metrics ask for, what it has, and why. fastpath explain has the decisions.",
    [
        Variable("namespace", "label_values(<min_replicas>, namespace)", "Namespace"),
        Variable("name", 'label_values(<min_replicas>{namespace="$namespace"}, name)', "Name"),
        Variable("kind", 'label_values(<min_replicas>{namespace="$namespace", name="$name"}, kind)', "Kind"),
    ],
    [
        stat(
            "Demand",
            "Replicas that the metrics ask for. Without a number a metric has no value.",
            f"max(<demand>{{{ONE}}})",
        ),
        stat(
            "Asked for",
            "Replicas that Fastpath decided on, within the limits. For an HPA: what it recommends. Without a "
            "number the last decision has no count: no metric has a value, or scaling is paused.",
            _DESIRED,
        ),
        stat(
            "Ready",
            "Ready pods. If it stays below what is asked for, look at the pods and at free nodes.",
            f"max(<ready_pods>{{{ONE}}})",
        ),
        stat(
            "Age of values",
            "Age of the oldest value of the last decision. Above three minutes, look for the slow source.",
            _OWN_AGE,
            unit="s",
            red=180,
        ),
        stat(
            "Reason",
            "Why the last decision was as it was. fastpath explain has the whole sentence.",
            f"max by (reason) (<reason>{{{ONE}}})",
            "{{reason}}",
            width=8,
            names=True,
        ),
        Panel(
            "Replicas",
            "Demand above the maximum: raise maxReplicas. Asked for above spec.replicas: the write fails, or "
            "the autoscaler only advises. spec.replicas above ready: pods do not start. The floor is what a "
            "boosted HPA is held at.",
            [
                Query(f"max(<demand>{{{ONE}}})", "demand"),
                Query(_DESIRED, "asked for"),
                Query(_CURRENT, "spec.replicas"),
                Query(f"max(<ready_pods>{{{ONE}}})", "ready"),
                Query(f"max(<floor_replicas>{{{ONE}}})", "floor"),
                Query(f"max(<min_replicas>{{{ONE}}})", "minimum"),
                Query(f"max(<max_replicas>{{{ONE}}})", "maximum"),
            ],
            width=24,
            height=11,
            dashed=("minimum", "maximum"),
        ),
        Panel(
            "Reason",
            "How the reason changed over time.",
            [Query(f"max by (reason) (<reason>{{{ONE}}})", "{{reason}}")],
            "state-timeline",
            width=24,
            height=6,
        ),
        Panel(
            "Age of values",
            "A line that rises has no new values: the source does not answer, or is not scraped.",
            [Query(_OWN_AGE, "age")],
            unit="s",
            width=8,
        ),
        Panel(
            "Metrics without a value",
            "While it is above 0 nothing is scaled down.",
            [Query(f"max(<absent_metrics>{{{ONE}}})", "absent")],
            width=8,
        ),
        Panel(
            "Changes of direction within an hour",
            "More than a few an hour: use a longer stabilization window, or a metric that does not swing "
            "with the number of replicas.",
            [Query(f"sum(increase(<direction_changes>{{{ONE}}}[1h]))", "changes")],
            width=8,
        ),
        Panel(
            "From the load to the Scale",
            "The last scale that Fastpath wrote, at most. The dashboard of all autoscalers has the stages.",
            [Query(f"max(<last_scale_duration>{{{ONE}}})", "duration")],
            unit="s",
        ),
        Panel(
            "From the creation of a pod to Ready",
            "The last 50 pods; the newest weigh most. A scale-up helps only after this time: fastpath doctor "
            "says which part of it is a setting.",
            [
                Query(
                    f'max by (part, quantile) (<ready_time>{{{ONE}, part!="total"}})', "{{part}} {{quantile}}"
                ),
                Query(f'max by (quantile) (<ready_time>{{{ONE}, part="total"}})', "total {{quantile}}"),
            ],
            unit="s",
        ),
        Panel(
            "Boost",
            "1 while another client has demoted the HPA to advice. A FastPathAutoscaler has no data here.",
            [Query(f"max(<boost_demoted>{{{ONE}}})", "demoted")],
        ),
    ],
)

# --- the adapter -------------------------------------------------------------------------------------------

_HITS = f'sum(rate(<responses>{{{PODS}, source=~"cache|joined|sweep"}}[$__rate_interval]))'

ADAPTER = Dashboard(
    "adapter",
    "Fastpath / Adapter",
    "The pods of Fastpath: requests, Prometheus, discovery, and what they use.",
    [
        Variable("job", "label_values(<build>, job)", "Job", several=True),
        Variable("instance", 'label_values(<build>{job=~"$job"}, instance)', "Instance", several=True),
    ],
    [
        stat(
            "Ready pods",
            "Pods that are ready, by command. With 0 of serve the metrics APIs are down.",
            f"sum by (command) (<ready>{{{PODS}}})",
            "{{command}}",
            red=1,
            red_below=True,
        ),
        stat(
            "APIServices that lead here",
            "The smallest value counts: 0 means that another server has taken an APIService. Run fastpath "
            "preflight. No data without the right to read APIServices.",
            f"min(max by (apiservice) (<apiservice_owned>{{{PODS}}}))",
            red=1,
            red_below=True,
        ),
        stat(
            "Problems",
            "Problems that persist. One that all pods of a job have counts once. The log names each problem "
            "once.",
            f"sum(max by (job, fault) (<faults_active>{{{PODS}}})) or vector(0)",
            red=1,
        ),
        stat(
            "Faults in rules",
            "Faults in the configuration in use. Run fastpath check on the rules.",
            f"max(<config_faults>{{{PODS}}})",
            red=1,
        ),
        stat(
            "Certificate expires in",
            "The first serving certificate to expire. fastpath certs makes the next one.",
            f"min(<certificate_expiration>{{{PODS}}}) - time()",
            unit="s",
            red=604800,
            red_below=True,
            minimum=None,
        ),
        stat(
            "Since the last complete discovery",
            "Time since all series lists were read. If it grows beyond the relist interval, discovery fails.",
            f"time() - min(<discovery_success>{{{PODS}}})",
            unit="s",
        ),
        Panel(
            "Requests",
            "Requests by status. 5xx: values cannot be fetched. 429: a limit is reached. 401 and 403: the "
            "caller is not known or not allowed.",
            [Query(f"sum by (code) (rate(<requests>{{{PODS}}}[$__rate_interval]))", "{{code}}")],
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Failed requests",
            "Share of requests with a 5xx status. Autoscalers do not scale down on an error.",
            [
                Query(
                    f'(sum by (group) (rate(<requests>{{{METRICS_API}, code=~"5.."}}[$__rate_interval])) or '
                    f"0 * sum by (group) (rate(<requests>{{{METRICS_API}}}[$__rate_interval]))) / "
                    f"sum by (group) (rate(<requests>{{{METRICS_API}}}[$__rate_interval]))",
                    "{{group}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            "Latency of requests",
            "Time to answer. A slow median points to Prometheus; a slow tail alone to reviews or to CPU.",
            [
                Query(
                    f"histogram_quantile({quantile}, sum by (le, group) "
                    f"(rate(<request_duration>_bucket{{{METRICS_API}}}[$__rate_interval])))",
                    f"{{{{group}}}} {name}",
                )
                for quantile, name in ((0.5, "median"), (0.99, "99 %"))
            ],
            unit="s",
        ),
        Panel(
            "Age of served values",
            "From the timestamp of a value to its response. It is bounded by how often Prometheus scrapes.",
            [
                Query(
                    "histogram_quantile(0.9, sum by (le, group) "
                    f"(rate(<freshness>_bucket{{{PODS}}}[$__rate_interval])))",
                    "{{group}} 90 %",
                )
            ],
            unit="s",
        ),
        Panel(
            "Answers without a query of their own",
            "Share of answers from the cache or from a shared query. Prometheus has little load while it is "
            "high.",
            [Query(f"{_HITS} / sum(rate(<responses>{{{PODS}}}[$__rate_interval]))", "shared")],
            unit="percentunit",
        ),
        Panel(
            "Sources of answers",
            "stale: the last answer is served because Prometheus fails.",
            [Query(f"sum by (source) (rate(<responses>{{{PODS}}}[$__rate_interval]))", "{{source}}")],
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Queries to Prometheus",
            "Queries by outcome. Anything but success: run fastpath check with --prometheus-url.",
            [Query(f"sum by (outcome) (rate(<queries>{{{PODS}}}[$__rate_interval]))", "{{outcome}}")],
            unit="ops",
        ),
        Panel(
            "Latency of Prometheus",
            "Time of a query to Prometheus.",
            [
                Query(
                    f"histogram_quantile({quantile}, sum by (le) "
                    f"(rate(<query_duration>_bucket{{{PODS}}}[$__rate_interval])))",
                    name,
                )
                for quantile, name in ((0.5, "median"), (0.99, "99 %"))
            ],
            unit="s",
        ),
        Panel(
            "Discovery",
            "Duration of the last discovery. Many series make it long: narrow seriesQuery.",
            [Query(f"max by (instance) (<discovery_duration>{{{PODS}}})", "{{instance}}")],
            unit="s",
            width=8,
        ),
        Panel(
            "Series in discovery",
            "Series that rules select. A sudden growth costs memory of Prometheus and Fastpath.",
            [Query(f"max by (instance) (<discovery_series>{{{PODS}}})", "{{instance}}")],
            width=8,
        ),
        Panel(
            "Failures of discovery",
            "Series lists that could not be read. Known metrics stay, new ones do not appear.",
            [
                Query(
                    f"sum by (reason) (increase(<discovery_failures>{{{PODS}}}[$__rate_interval]))",
                    "{{reason}}",
                )
            ],
            width=8,
        ),
        Panel(
            "Memory",
            "Resident memory. The page of limits has the sum of all bounds.",
            [
                Query(
                    f"process_resident_memory_bytes{{{PODS}}} and on (job, instance) <build>", "{{instance}}"
                )
            ],
            unit="bytes",
        ),
        Panel(
            "CPU",
            "Used CPUs. A process uses one at most, and a second one during discovery.",
            [
                Query(
                    f"rate(process_cpu_seconds_total{{{PODS}}}[$__rate_interval]) "
                    "and on (job, instance) <build>",
                    "{{instance}}",
                )
            ],
        ),
        Panel(
            "Lag of the event loop",
            "Delay of timers in one of a hundred. Above a tenth of a second the process has too little CPU.",
            [
                Query(
                    "histogram_quantile(0.99, sum by (le, instance) "
                    f"(rate(<loop_lag>_bucket{{{PODS}}}[$__rate_interval])))",
                    "{{instance}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Connections",
            "Open client connections. kube-apiserver opens a few; thousands are a flood.",
            [Query(f"sum by (instance) (<connections>{{{PODS}}})", "{{instance}}")],
        ),
        Panel(
            "Refused requests and closed connections",
            "Requests and connections beyond a limit. The page of limits says which flag raises it.",
            [
                Query(
                    f"sum by (limit) (rate(<requests_refused>{{{PODS}}}[$__rate_interval]))", "429 {{limit}}"
                ),
                Query(
                    f"sum by (reason) (rate(<connections_closed>{{{PODS}}}[$__rate_interval]))",
                    "closed {{reason}}",
                ),
            ],
            unit="ops",
        ),
        Panel(
            "Rate limits that slow down",
            "Above 1, --prometheus-max-queries-per-second or --scrape-max-per-second slows down queries or "
            "scrapes.",
            [
                Query(f"max(<query_period_stretch>{{{PODS}}})", "queries"),
                Query(f"max(<scrape_stretch>{{{PODS}}})", "scrapes"),
            ],
        ),
    ],
)

DASHBOARDS = (CLUSTER, AUTOSCALER, ADAPTER)
