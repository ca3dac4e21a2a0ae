"""Text that others choose, on its way into PromQL: names of series and labels, selectors, names of objects.

Whatever the text, a query reads the series of the rule with the requested matchers, or there is no query.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import promql_parser as promql
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.errors import BadRequestError, NamingError, TemplateError, UnsupportedSelectorError
from adapter.model import steps
from adapter.model.metrics import GroupResource, SeriesInfo
from adapter.model.objects.label_selectors import parse_selector
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from adapter.rules import lookback, matchers, query_plan, registry
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import MetricQuery
from adapter.rules.registry import Registry
from tests.support.answers import answers
from tests.support.world import compile_rule, compile_text

PODS = GroupResource("", "pods")
TEMPLATES = {
    "plain": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "rate": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
    "values in quotes": 'sum(<<.Series>>{pod="<<.LabelValuesByName.pod>>"}) by (<<.GroupBy>>)',
    "values in a pattern": "sum(<<.Series>>{pod=~'<<index .LabelValuesByName \"pod\">>'}) by (<<.GroupBy>>)",
    "values in a loop": (
        'sum(<<.Series>>{<<range $name, $value := .LabelValuesByName>><<$name>>="<<$value>>",<<end>>}) '
        "by (<<index .GroupBySlice 0>>)"
    ),
}
HOSTILE = answers("rules/injection", "hostile")
_WORDS = """
a avg and atan2 bool bottomk by count end group group_left group_right ignoring inf nan NaN Inf limitk
max min offset on or quantile start stddev step sum topk unless without anchored smoothed fill _ : a:b
up9 http_requests_total
"""
WORDS = _WORDS.split()
KEYWORDS = {"inf", "nan", "atan2", "bool", "group_left", "group_right", "ignoring", "on"}
TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.sampled_from(WORDS),
    st.text(max_size=12),
    st.text("ab_:.-/{}()\"'`,=~! \n#", max_size=10),
    st.lists(st.sampled_from((*HOSTILE, *WORDS)), min_size=2, max_size=3).map("".join),
)


def selectors_of(query: str) -> Iterator[tuple[str | None, list[tuple[str, str, str]]]]:
    """Yield name and matchers of each vector selector of a query."""
    pending: list[Any] = [promql.parse(query)]
    while pending:
        node = pending.pop()
        match node:
            case promql.VectorSelector():
                assert not node.matchers.or_matchers
                yield node.name, sorted((one.name, str(one.op), one.value) for one in node.matchers.matchers)
            case promql.MatrixSelector():
                pending.append(node.vector_selector)
            case promql.AggregateExpr() | promql.ParenExpr():
                pending.append(node.expr)
            case promql.Call():
                pending += node.args
            case _:
                raise AssertionError(f"{node!r} is in no template")


def grouping(query: str) -> list[str]:
    aggregation: Any = promql.parse(query)
    return list(aggregation.modifier.labels)


def rules_of(template: str) -> str:
    rule = {"seriesQuery": "s", "resources": {"template": "<<.Resource>>"}, "metricsQuery": template}
    return yaml.safe_dump({"rules": [rule]}, width=1000)


def built(template: str, *known: SeriesInfo, catalogue: Catalogue = BUILTIN) -> Registry:
    ruleset = compile_text(rules_of(template), catalogue)
    return steps.run(registry.building(ruleset, steps.run(registry.remembering({}, "s", known)), 1))


def shown(parts: Sequence[Matcher]) -> list[tuple[str, str, str]]:
    """Return matchers as the parser names them."""
    words = {"=": "Equal", "!=": "NotEqual", "=~": "Re", "!~": "NotRe"}
    return sorted((part.label, f"MatchOp.{words[part.operator]}", part.value) for part in parts)


@given(TEXTS, st.sampled_from(sorted(TEMPLATES)))
def test_a_query_reads_the_series_of_its_entry_whatever_the_series_are_called(
    name: str, template: str
) -> None:
    made = built(TEMPLATES[template], SeriesInfo(name, frozenset({"namespace", "pod"}), 1))
    assume(
        name not in {"anchored", "smoothed"}
    )  # words of the parser alone, after a range and never before a brace
    legacy = re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name) and name.lower() not in KEYWORDS
    assert bool(made.custom) == bool(legacy)
    assert [(each.names, each.example) for each in made.unwritable] == ([] if legacy else [(1, name)])
    for entry in made.custom.values():
        query = MetricQuery(entry.rule, entry.series, (), "namespace", "pod")
        for text in (query.render("a", ["web-0"]), query.render("a", ["web-0", "web-1"])):
            assert [each for each, _ in selectors_of(text)] == [name]
        if query.separability.joined:
            assert [each for each, _ in selectors_of(query_plan.sweep(query).promql)] == [name]


@given(TEXTS, TEXTS)
def test_a_query_is_grouped_by_labels_of_the_rule_whatever_labels_the_series_have(
    one: str, other: str
) -> None:
    made = built(TEMPLATES["plain"], SeriesInfo("x", frozenset({"namespace", "pod", one, other}), 1))
    for key, entry in made.custom.items():
        converter = entry.rule.converter
        label = converter.label_for(key.resource)
        query = MetricQuery(entry.rule, entry.series, (), converter.label_for(NAMESPACES), label)
        ((name, found),) = selectors_of(query.render("a", ["b"]))
        assert (name, found) == ("x", shown([Matcher("namespace", "=", "a"), Matcher(label, "=", "b")]))


@pytest.mark.parametrize("singular", ["my-widget", "a.b", 'x) or (y{z="', "é"])
def test_a_label_that_is_made_of_the_name_of_a_kind_is_quoted(singular: str) -> None:
    kind = APIResource("example.com", "v1", "widgets", singular, "Widget", True, frozenset(), True)
    made = built(
        TEMPLATES["plain"], SeriesInfo("x", frozenset({singular}), 1), catalogue=Catalogue([*BUILTIN, kind])
    )
    (entry,) = {id(each): each for each in made.custom.values()}.values()
    query = MetricQuery(entry.rule, "x", (), "namespace", entry.rule.converter.label_for(kind.group_resource))
    text = query.render("a", ["b"])
    assert list(selectors_of(text)) == [
        ("x", shown([Matcher("namespace", "=", "a"), Matcher(singular, "=", "b")]))
    ]
    assert grouping(text) == [singular]
    assert not query.separability.reason
    assert grouping(query_plan.sweep(query).promql) == [singular, "namespace"]


VALUES = st.one_of(TEXTS, st.from_regex(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?)?", fullmatch=True))
KEYS = st.one_of(
    TEXTS,
    st.from_regex(
        r"([a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?", fullmatch=True
    ),
)


@given(
    KEYS,
    VALUES,
    st.sampled_from(["{}={}", "{}!={}", "{} in ({},b)", "{} notin ({})", "{}", "!{}"]),
    st.sampled_from(sorted(TEMPLATES)),
)
def test_a_selector_adds_its_matchers_and_nothing_else(
    key: str, value: str, form: str, template: str
) -> None:
    rule = compile_rule(rules_of(TEMPLATES[template]))
    try:
        parts = matchers.from_selector(parse_selector(form.format(key, value)))
        query = MetricQuery(rule, "x", parts, "namespace", "pod")
        text = query.render("a", ["web-0"])
    except (BadRequestError, UnsupportedSelectorError, TemplateError):
        return
    own = [*parts, Matcher("namespace", "=", "a"), Matcher("pod", "=", "web-0")]
    ((name, found),) = selectors_of(text)
    assert name == "x"
    if rule.query.is_plain and "LabelValuesByName" not in rule.query.fields:
        assert found == shown(own)
        assert list(selectors_of(lookback.age_query(text, "x", own).promql)) == [("x", shown(own))]
    else:
        assert ("pod", "web-0") in {(label, text) for label, _, text in found}
        assert {label for label, _, _ in found} <= {part.label for part in own}


@given(TEXTS, st.sampled_from(sorted(TEMPLATES)))
def test_the_name_of_an_object_stays_a_value(name: str, template: str) -> None:
    rule = compile_rule(rules_of(TEMPLATES[template]))
    query = MetricQuery(rule, "x", (), "namespace", "pod")
    try:
        text = query.render("a", [name])
    except TemplateError:
        assert template.startswith("values")
        assert not re.fullmatch(r"[A-Za-z0-9_.:|-]*", name)
        return
    ((series, found),) = selectors_of(text)
    assert series == "x"
    assert ("pod", name) in {(label, value) for label, _, value in found}
    assert {label for label, _, _ in found} <= {"namespace", "pod"}


def test_the_reason_names_label_and_value() -> None:
    rule = compile_rule(rules_of(TEMPLATES["values in quotes"]))
    with pytest.raises(
        TemplateError,
        match=r'^value "a\\"b" of label pod: expected letters, digits and any of _\.:-, because',
    ):
        rule.render("x", [Matcher("pod", "=", 'a"b')], [])
    with pytest.raises(
        TemplateError,
        match=r'^label "a/b": expected a label name of letters, digits and underscores, because',
    ):
        rule.render("x", [Matcher("a/b", "=", "c")], [])


def test_a_rule_without_a_label_for_namespaces_has_none_from_the_series() -> None:
    rule = compile_rule("rules: [{seriesQuery: s, resources: {overrides: {pod: {resource: pod}}}}]")
    with pytest.raises(NamingError):
        rule.converter.label_for(NAMESPACES)
    assert rule.converter.label_for(PODS) == "pod"
