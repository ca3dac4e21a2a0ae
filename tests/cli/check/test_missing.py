"""Every cause of an absent metric, by the smallest case that has it."""

from collections.abc import Mapping, Sequence

import pytest

from adapter.cli.check import missing
from adapter.cli.check.missing import MissingCase
from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.rules import registry
from tests.support.world import compile_text, series

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}, metricsQuery: x"
FAILED = PrometheusError("timeout", "too slow")
Known = Mapping[str, Sequence[SeriesInfo] | PrometheusError]


def sentence(
    rules: str, metric: str, known: Known, probes: Known | None = None, left_out: Sequence[str] = ()
) -> str:
    """Return what is said of a metric, given the series of each selector and of each name.

    What is not given is empty.
    """
    ruleset = compile_text(rules)
    lists = {selector: _list(known.get(selector, ())) for selector in ruleset.selectors()}
    traces = missing.trace_rules(ruleset, lists, metric)
    memory: dict[str, tuple[registry.KnownSeries, ...]] = {}
    for selector, answer in lists.items():
        if not isinstance(answer, PrometheusError):
            memory = registry.remember(memory, selector, answer)
    names = missing.probe_names(metric, traces)
    found = {name: _list((probes or {}).get(name, ())) for name in names}
    assert set(probes or {}) <= set(names)
    return missing.explain(
        MissingCase(metric, traces, found, registry.build(ruleset, memory, 1), left_out, "10m0s")
    )


def _list(answer: Sequence[SeriesInfo] | PrometheusError) -> tuple[SeriesInfo, ...] | PrometheusError:
    return answer if isinstance(answer, PrometheusError) else tuple(answer)


def seen(name: str, *labels: str) -> tuple[SeriesInfo, ...]:
    return series({"__name__": name, **dict.fromkeys(labels, "x")})


HITS = f"rules: [{{seriesQuery: 'hits{{pod!=\"\"}}', {POD}}}]"
SELECTOR = 'hits{pod!=""}'

CASES: dict[str, tuple[str, str, Known, Known, Sequence[str], str]] = {
    "no label names an object": (
        HITS,
        "hits",
        {
            SELECTOR: seen(
                "hits", "kubernetes_pod_name", "exported_namespace", "job_name", "Namespace", "code"
            )
        },
        {},
        (),
        (
            "rules[0] makes hits of hits, but none of its labels (Namespace, code, exported_namespace, "
            "job_name, kubernetes_pod_name) names a kind of object: map them in its resources.overrides, "
            "such as Namespace: {resource: namespace}, job_name: {resource: job}, kubernetes_pod_name: "
            "{resource: pod}"
        ),
    ),
    "no label at all": (
        HITS,
        "hits",
        {SELECTOR: seen("hits")},
        {},
        (),
        (
            "rules[0] makes hits of hits, but it has no label that could name an object: map them in its "
            "resources.overrides, such as pod: {resource: pod}, namespace: {resource: namespace}"
        ),
    ),
    "dropped by a filter": (
        (
            "rules: [{seriesQuery: a, seriesFilters: [{isNot: ^http_old}], name: {matches: '^http_(.*)$'}, "
            f"{POD}}}]"
        ),
        "old_hits",
        {"a": (*seen("http_hits", "pod"), *seen("http_old_misses"), *seen("http_old_hits", "pod"))},
        {},
        (),
        (
            "rules[0] drops the series http_old_hits by seriesFilters isNot ^http_old: change that, or add a "
            "rule that takes the series"
        ),
    ),
    "a name that PromQL cannot write": (
        f"rules: [{{seriesQuery: a, name: {{matches: '^http[.](.*)$'}}, {POD}}}]",
        "hits",
        {"a": (*seen("http.misses", "pod"), *seen("http.hits", "pod"))},
        {},
        (),
        (
            'rules[0] leaves out the series "http.hits", because it has a name that PromQL cannot write '
            "without quotes: "
            "rename it when it is scraped (metric_relabel_configs), or by a recording rule"
        ),
    ),
    "dropped by its name": (
        f"rules: [{{seriesQuery: a, name: {{matches: '^http_(.*)$'}}, {POD}}}]",
        "up",
        {"a": seen("up", "pod")},
        {},
        (),
        (
            "rules[0] drops the series up by name.matches ^http_(.*)$: change that, or add a rule that takes "
            "the series"
        ),
    ),
    "served under another name": (
        f"rules: [{{seriesQuery: a, name: {{matches: '^http_(.*)$'}}, {POD}}}]",
        "http_hits",
        {"a": (*seen("http_misses", "pod"), *seen("http_hits", "pod"))},
        {},
        (),
        "rules[0] serves the series http_hits as hits: ask for that, or change its name.as",
    ),
    "no list could be read": (
        f"rules: [{{seriesQuery: a, {POD}}}, {{seriesQuery: b, {POD}}}]",
        "hits",
        {"a": FAILED, "b": FAILED},
        {},
        (),
        "no series could be read (too slow): check the address of Prometheus, and that it is up",
    ),
    "one list could not be read": (
        (
            f"rules: [{{seriesQuery: a, name: {{as: x}}, {POD}}}, {{seriesQuery: b, {POD}}}, {{seriesQuery: "
            f"c, {POD}}}]"
        ),
        "hits",
        {"a": FAILED, "b": FAILED},
        {},
        (),
        "the series of rules[1] could not be read (too slow): fix its seriesQuery or the connection",
    ),
    "the series is gone": (
        HITS,
        "hits",
        {},
        {},
        (),
        (
            "rules[0] makes hits of hits, and Prometheus has had no such series in the last 10m0s: check "
            "that its targets are up, and the name"
        ),
    ),
    "the series may be gone": (
        HITS,
        "hits",
        {},
        {"hits": FAILED},
        (),
        (
            "rules[0] makes hits of hits, and Prometheus has had no such series in the last 10m0s: check "
            "that its targets are up, and the name"
        ),
    ),
    "the series has other labels": (
        'rules: [{seriesQuery: \'hits{pod!="",node!="",code="200"}\', metricsQuery: x}]',
        "hits",
        {},
        {"hits": seen("hits", "code", "instance")},
        (),
        (
            "Prometheus has hits, but not with the labels node, pod that the seriesQuery of rules[0] "
            "demands: write the rule with labels that are there (code, instance), or have them added when it "
            "is scraped"
        ),
    ),
    "the labels have other values": (
        HITS,
        "hits",
        {},
        {"hits": seen("hits", "pod")},
        (),
        (
            "Prometheus has hits, but no series passes all matchers in the seriesQuery of rules[0]: compare "
            "their values with the labels of the series"
        ),
    ),
    "capitals": (
        "externalRules: [{seriesQuery: a, resources: {namespaced: false}, metricsQuery: x}]",
        "queuedepth",
        {"a": (*seen("other"), *seen("QueueDepth"))},
        {},
        (),
        (
            "QueueDepth is served, but autoscalers ask for external metrics in lower case and never find it: "
            "give it a lower-case name through name.as"
        ),
    ),
    "a faulty rule": (
        "rules: []",
        "hits",
        {},
        {},
        ("rules[3]",),
        "no valid rule makes hits, and rules[3] is left out because of a fault: fix that first",
    ),
    "faulty rules": (
        "rules: []",
        "hits",
        {},
        {},
        ("rules[3]", "rules[4]"),
        "no valid rule makes hits, and rules[3], rules[4] are left out because of a fault: fix that first",
    ),
    "no query reads the series": (
        f"rules: [{{seriesQuery: misses, {POD}}}]",
        "hits",
        {"misses": seen("misses", "pod")},
        {"hits": seen("hits", "pod")},
        (),
        "Prometheus has hits (1 series), and no rule's seriesQuery matches it: add a rule for it",
    ),
    "a rule nearly asks for the series": (
        (
            'rules: [{seriesQuery: \'{a!="",b!=""}\', metricsQuery: x}, {seriesQuery: '
            '\'{__name__=~"^h.*",c!=""}\', metricsQuery: x}, '
            '{seriesQuery: \'{__name__=~"^x.*",pod!=""}\', metricsQuery: x}]'
        ),
        "hits",
        {},
        {"hits": seen("hits", "pod")},
        (),
        (
            "Prometheus has hits (1 series), and no rule's seriesQuery matches it; rules[1] demands the "
            "label c: add that to the series, or a rule for them"
        ),
    ),
    "misspelt": (
        HITS,
        "hit",
        {SELECTOR: seen("hits", "pod")},
        {},
        (),
        "no rule makes hit: did you mean hits?",
    ),
    "misspelt external": (
        "externalRules: [{seriesQuery: a, resources: {namespaced: false}, metricsQuery: x}]",
        "queue_dept",
        {"a": seen("queue_depth")},
        {},
        (),
        "no rule makes queue_dept: did you mean queue_depth?",
    ),
    "unknown": (
        HITS,
        "zzz",
        {SELECTOR: seen("hits", "pod")},
        {},
        (),
        (
            "no rule makes zzz of the series there are, and Prometheus has had no series of that name in the "
            "last 10m0s: check the spelling, or add a rule"
        ),
    ),
    "no rule": ("rules: []", "hits", {}, {}, (), "the file has no rule: add one that asks for the series"),
}


@pytest.mark.parametrize(
    ("rules", "metric", "known", "probes", "left_out", "expected"), CASES.values(), ids=CASES
)
def test_explain(
    rules: str, metric: str, known: Known, probes: Known, left_out: Sequence[str], expected: str
) -> None:
    assert sentence(rules, metric, known, probes, left_out) == expected


def test_probe_names() -> None:
    rules = compile_text(
        f"rules: [{{seriesQuery: a_total, name: {{matches: '(.*)_total'}}, {POD}}}, {{seriesQuery: "
        f"'a{{x=\"\"}}', {POD}}}, {{seriesQuery: b, {POD}}}]"
    )
    lists = dict[str, tuple[SeriesInfo, ...]].fromkeys(rules.selectors(), ())
    assert missing.probe_names("a", missing.trace_rules(rules, lists, "a")) == ("a", "a_total")
    full = {**lists, "a_total": seen("a_total")}
    assert missing.probe_names("a", missing.trace_rules(rules, full, "a")) == ("a",)


def test_rules_of() -> None:
    paths = [
        "rules[3].name.matches",
        "rules[3]",
        "rules.custom[0].ttl",
        "",
        "Rules",
        "externalRules[1].resources.overrides.a",
    ]
    assert missing.rules_of(paths) == ("rules[3]", "rules.custom[0]", "the file", "Rules", "externalRules[1]")
