import pytest

from adapter.cli.check import missing
from adapter.cli.check.missing import RuleTrace
from adapter.cli.check.preview import SeriesLists
from adapter.errors import PrometheusError
from adapter.rules import wording
from tests.support.world import compile_text, series

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
    assert wording.listed(texts) == shown


def test_labels_of() -> None:
    requests = [each for each in WEB if each.name == "http_requests"]
    assert missing.labels_of(requests) == {"namespace", "pod", "code", "path"}
    assert missing.labels_of(()) == set()
