"""Every cause of an absent metric, by the smallest case that has it."""

from collections.abc import Mapping, Sequence

import pytest

from adapter.errors import PrometheusError
from adapter.model import visible
from adapter.model.metrics import SeriesInfo
from adapter.rules import registry
from fastpath_tools.check import missing
from fastpath_tools.check.missing import MissingCase, RuleTrace
from fastpath_tools.live.preview import SeriesLists
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
        "rules[0] serves the series http_hits as hits: request that name, or change its name.as",
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
            "QueueDepth is served, but autoscalers request external metrics in lower case and never find it: "
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
    "no rule": ("rules: []", "hits", {}, {}, (), "the file has no rule: add one that selects the series"),
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


RULES = """
rules:
- seriesQuery: '{job="web"}'
  seriesFilters: [{isNot: _old$}]
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^http_(.*)$'}
  metricsQuery: x
- seriesQuery: hits
  resources: {template: '<<.Resource>>'}
  metricsQuery: x
externalRules:
- {seriesQuery: hits, metricsQuery: x}
"""
WEB = series(
    {"__name__": "http_requests", "namespace": "a", "pod": "b", "code": "200"},
    {"__name__": "http_requests", "namespace": "a", "pod": "c", "path": "/"},
    {"__name__": "http_requests_old", "namespace": "a", "pod": "b"},
    {"__name__": "up", "namespace": "a"},
    {"__name__": "http_errors", "namespace": "a"},
)
LISTS: SeriesLists = {'{job="web"}': WEB, "hits": ()}


def traced(metric: str, lists: SeriesLists = LISTS, text: str = RULES) -> tuple[RuleTrace, ...]:
    return missing.trace_rules(compile_text(text), lists, metric)


def test_every_rule_is_traced_in_order() -> None:
    assert [(each.place, each.external) for each in traced("requests")] == [
        ("rules[0]", False),
        ("rules[1]", False),
        ("externalRules[0]", True),
    ]


def test_what_a_rule_makes_of_its_series() -> None:
    web = traced("requests")[0]
    assert [each.name for each in web.gives] == ["http_requests"]
    assert [(each.series.name, each.reason, each.otherwise) for each in web.rejected] == [
        ("http_requests_old", "seriesFilters isNot _old$", "requests_old"),
        ("up", "name.matches ^http_(.*)$", None),
    ]
    assert {name: [each.name for each in given] for name, given in web.others.items()} == {
        "errors": ["http_errors"]
    }
    assert [(label, str(resource.group_resource)) for label, resource in web.mapped] == [
        ("namespace", "namespaces"),
        ("pod", "pods"),
    ]
    assert web.plain == ("code", "path")


def test_steps() -> None:
    assert missing.steps(traced("requests")[0]) == [
        (
            "matches http_requests (2 series), http_requests_old (1 series), up (1 series), http_errors (1 "
            "series)"
        ),
        "dropped by seriesFilters isNot _old$: http_requests_old (1 series)",
        "dropped by name.matches ^http_(.*)$: up (1 series)",
        "becomes errors: http_errors (1 series)",
        "becomes the metric: http_requests (2 series)",
        "label namespace names namespaces",
        "label pod names pods",
        "labels that name no kind of object: code, path",
    ]


def test_steps_without_a_plain_label() -> None:
    assert missing.steps(traced("errors")[0])[-2:] == [
        "becomes the metric: http_errors (1 series)",
        "label namespace names namespaces",
    ]


def test_steps_of_an_external_rule_say_nothing_of_labels() -> None:
    lists = {**LISTS, "hits": series({"__name__": "hits", "namespace": "a"})}
    assert missing.steps(traced("hits", lists)[2]) == [
        "matches hits (1 series)",
        "becomes the metric: hits (1 series)",
    ]


def test_steps_are_few() -> None:
    names = [f"http_{number}" for number in range(7)]
    lists = {**LISTS, '{job="web"}': series(*[{"__name__": name} for name in names], {"__name__": "http_"})}
    assert missing.steps(traced("requests", lists)[0]) == [
        (
            "matches http_0 (1 series), http_1 (1 series), http_2 (1 series), http_3 (1 series), http_4 (1 "
            "series) and 3 more"
        ),
        *[f"becomes {number}: http_{number} (1 series)" for number in range(5)],
        "and 3 more metrics",
    ]


def test_a_name_without_a_character() -> None:
    lists = {**LISTS, '{job="web"}': series({"__name__": "http_"})}
    assert missing.steps(traced("x", lists)[0])[-1] == "becomes (an empty name): http_ (1 series)"


def test_no_series() -> None:
    assert missing.steps(traced("hits")[1]) == ["matches no series"]


def test_a_list_that_was_not_read() -> None:
    web = traced("requests", {**LISTS, '{job="web"}': PrometheusError("timeout", "too slow")})[0]
    assert (web.error, web.matched, web.gives) == ("too slow", (), ())
    assert missing.steps(web) == ["the series could not be read: too slow"]
    assert web.leads_to("anything")


@pytest.mark.parametrize(
    ("metric", "place", "leads"),
    [
        ("requests_old", "rules[0]", True),
        ("http_requests_old", "rules[0]", True),
        ("up", "rules[0]", True),
        ("http_errors", "rules[0]", True),
        ("nothing", "rules[0]", False),
        ("hits", "rules[1]", True),
        ("misses", "rules[1]", False),
    ],
)
def test_leads_to(metric: str, place: str, *, leads: bool) -> None:
    (found,) = [each for each in traced(metric) if each.place == place]
    assert found.leads_to(metric) is leads


def test_fixed_name() -> None:
    web, hits, _ = traced("hits")
    assert (web.fixed_name("hits"), hits.fixed_name("hits"), hits.fixed_name("misses")) == (
        None,
        "hits",
        None,
    )


@pytest.mark.parametrize(
    ("texts", "shown"),
    [([], ""), (["a"], "a"), (list("abcde"), "a, b, c, d, e"), (list("abcdefg"), "a, b, c, d, e and 2 more")],
)
def test_listed(texts: list[str], shown: str) -> None:
    assert visible.listed(texts) == shown


def test_labels_of() -> None:
    requests = [each for each in WEB if each.name == "http_requests"]
    assert missing.labels_of(requests) == {"namespace", "pod", "code", "path"}
    assert missing.labels_of(()) == set()
