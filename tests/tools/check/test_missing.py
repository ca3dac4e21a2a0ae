"""What rules make of series, and metrics whose series cannot be read.

`tests/golden/check/why-*` has every other cause of an absent metric.
"""

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


def sentence(rules: str, metric: str, known: Known, probes: Known | None = None) -> str:
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
        MissingCase(metric, traces, found, registry.build(ruleset, memory, 1), (), "10m0s")
    )


def _list(answer: Sequence[SeriesInfo] | PrometheusError) -> tuple[SeriesInfo, ...] | PrometheusError:
    return answer if isinstance(answer, PrometheusError) else tuple(answer)


def seen(name: str, *labels: str) -> tuple[SeriesInfo, ...]:
    return series({"__name__": name, **dict.fromkeys(labels, "x")})


def test_no_list_could_be_read() -> None:
    rules = f"rules: [{{seriesQuery: a, {POD}}}, {{seriesQuery: b, {POD}}}]"
    assert sentence(rules, "hits", {"a": FAILED, "b": FAILED}) == (
        "no series could be read (too slow): check the address of Prometheus, and that it is up"
    )


def test_one_list_could_not_be_read() -> None:
    named = f"{{seriesQuery: a, name: {{as: x}}, {POD}}}"
    rules = f"rules: [{named}, {{seriesQuery: b, {POD}}}, {{seriesQuery: c, {POD}}}]"
    assert sentence(rules, "hits", {"a": FAILED, "b": FAILED}) == (
        "the series of rules[1] could not be read (too slow): fix its seriesQuery or the connection"
    )


def test_a_series_that_may_be_gone() -> None:
    said = sentence(f"rules: [{{seriesQuery: hits, {POD}}}]", "hits", {}, {"hits": FAILED})
    assert said.startswith("rules[0] makes hits of hits, and Prometheus has had no such series in the last")


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


def test_a_list_that_was_not_read() -> None:
    web = traced("requests", {**LISTS, '{job="web"}': PrometheusError("timeout", "too slow")})[0]
    assert (str(web.error), web.matched, web.gives) == ("too slow", (), ())
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
