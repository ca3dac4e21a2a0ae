"""Values of the prometheus-adapter chart: recognition, conversion as by the chart, paths of faults.

The default rules, and what is rendered: tests/golden/check/chart-values and print-config.
"""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.config import rules_file
from adapter.config.rules_config import Parsed, RuleConfig, RulesConfig
from fastpath_tools.live import chart_values as helm_values
from tests.support.answers import answers

CUSTOM = "{seriesQuery: q, metricsQuery: m}"


def parse(text: str) -> Parsed:
    return helm_values.rules_from_chart(text, "values.yaml")


def content(rules: tuple[RuleConfig, ...]) -> list[tuple[object, ...]]:
    """Everything of rules but their place."""
    return [
        (
            rule.series_query,
            rule.series_filters,
            rule.resources,
            rule.name_matches,
            rule.name_as,
            rule.metrics_query,
        )
        for rule in rules
    ]


@pytest.mark.parametrize(("text", "expected"), answers("live/chart_values", "recognition"))
def test_values_are_told_from_a_rules_file(text: str, expected: bool) -> None:  # noqa: FBT001 - a table column
    assert helm_values.is_chart_values(text) is expected


@pytest.mark.parametrize(("written", "count"), answers("live/chart_values", "defaults"))
def test_default_counts_by_truth_of_go_templates(written: str, count: int) -> None:
    assert len(parse(f"rules:\n  {written}\n").config.rules) == count


def test_sections_become_lists_of_the_rules_file() -> None:
    parsed = parse(
        f"""\
prometheus: {{url: http://p, port: 9090}}
rules:
  default: false
  custom:
  - {CUSTOM}
  - {{seriesQuery: q2, name: {{as: 5}}}}
  external:
  - seriesQuery: e
  resource: {{window: 3m}}
"""
    )
    assert not parsed.faults
    assert [(rule.path, rule.line, rule.source) for rule in parsed.config.rules] == [
        ("rules.custom[0]", 5, "values.yaml"),
        ("rules.custom[1]", 6, "values.yaml"),
    ]
    assert parsed.config.rules[1].name_as == "5"
    assert [(rule.path, rule.series_query) for rule in parsed.config.external_rules] == [
        ("rules.external[0]", "e")
    ]
    assert parsed.config.resource_rules is not None
    assert (parsed.config.resource_rules.path, parsed.config.resource_rules.window) == (
        "rules.resource",
        180.0,
    )


def test_custom_rules_follow_the_default_ones() -> None:
    assert [rule.path for rule in parse(f"custom: [{CUSTOM}]").config.rules][-2:] == [
        "default[5]",
        "custom[0]",
    ]


@pytest.mark.parametrize("written", ["{}", "~", "[]", "''", "false"])
def test_empty_sections_count_as_unset(written: str) -> None:
    parsed = parse(
        "rules: "
        f"{{default: false, custom: {written}, external: {written}, resource: {written}, "
        f"existing: {written}}}"
    )
    assert parsed == Parsed(RulesConfig())


def test_values_under_a_parent_chart() -> None:
    parsed = parse(f"other: 1\nprometheus-adapter:\n  rules: {{default: false, custom: [{CUSTOM}]}}\n")
    assert [rule.path for rule in parsed.config.rules] == ["prometheus-adapter.rules.custom[0]"]
    parsed = parse(f"fastpath: {{rules: {{default: false, custom: [{CUSTOM}]}}}}\n")
    assert [rule.path for rule in parsed.config.rules] == ["fastpath.rules.custom[0]"]


def test_values_without_rules_give_the_default_ones() -> None:
    assert len(parse("replicas: 2").config.rules) == 6
    assert len(parse("prometheus-adapter: {replicas: 2}").config.rules) == 6


@pytest.mark.parametrize(("text", "path", "words"), answers("live/chart_values", "fatal"))
def test_values_that_the_chart_would_not_render_are_fatal(text: str, path: str, words: str) -> None:
    parsed = parse(text)
    assert parsed.config == RulesConfig()
    (fault,) = parsed.fatal
    assert (fault.path, fault.source) == (path, "values.yaml")
    assert words in fault.expected
    with pytest.raises(errors.InputError) as caught:
        helm_values.render_config(text)
    assert words in str(caught.value)


def test_faults_carry_the_values_paths() -> None:
    parsed = parse(
        f"""\
rules:
  default: false
  custom:
  - {CUSTOM}
  - name: {{metricsQuery: q}}
  external: [{{ttl: 1}}]
  resource: {{cpu: []}}
"""
    )
    assert [(fault.path, fault.line) for fault in parsed.faults] == [
        ("rules.custom[1].name.metricsQuery", 5),
        ("rules.external[0].ttl", 6),
        ("rules.resource.cpu", 7),
    ]
    assert [rule.path for rule in parsed.config.rules] == ["rules.custom[0]"]


@pytest.mark.parametrize(("text", "path", "words"), answers("live/chart_values", "hidden"))
def test_what_helm_hides_is_said(text: str, path: str, words: str) -> None:
    parsed = parse(text)
    assert len(parsed.config.rules) >= 6
    (fault,) = parsed.faults
    assert fault.path == path
    assert words in fault.expected


def test_other_values_are_not_our_business() -> None:
    text = (
        "rules: {}\nresources: {limits: {cpu: 1}}\ndefault: x\ntls: {a: 1, a: 2}\nprometheus: {url: x, "
        "url: y}\nrulesX: {b: 1, b: 1}"
    )
    assert not parse(text).faults


@pytest.mark.parametrize(("written", "text"), answers("live/chart_values", "scalars"))
def test_scalars_are_spelled_as_after_a_trip_through_json(written: str, text: str) -> None:
    values = f"rules: {{default: false, custom: [{{name: {{as: {written}}}}}]}}"
    (rule,) = parse(values).config.rules
    assert rule.name_as == text
    (again,) = rules_file.parse_rules(helm_values.render_config(values), "").config.rules
    assert again.name_as == text


def test_labels_come_out_sorted() -> None:
    values = (
        "custom: [{resources: {overrides: {b: {resource: pod}, on: {resource: node}, a: {resource: pod}}}}]"
    )
    assert [override.label for override in parse(values).config.rules[-1].resources.overrides] == [
        "a",
        "b",
        "true",
    ]


@pytest.mark.parametrize(("entry", "expected"), answers("live/chart_values", "merges"))
def test_merge_keys_replace_whole_values(entry: str, expected: list[str]) -> None:
    values = f"x: &base {{seriesQuery: q, name: {{matches: m, as: a}}}}\nrules: {{custom: [{entry}]}}"
    rule = parse(values).config.rules[-1]
    assert [rule.series_query, rule.name_matches, rule.name_as] == expected


def test_a_list_as_a_key_is_a_fault_of_its_rule() -> None:
    parsed = parse("rules: {default: false, custom: [{? [a] : b}]}")
    assert [fault.expected for fault in parsed.faults] == ["expected text as the key"]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["1m", "zero", "^a$", "\x85"])
)
KEYS = st.sampled_from([*rules_file.VOCABULARY, *helm_values.SECTIONS, "prometheus", "group"]) | st.text(
    max_size=3
)
TREES: st.SearchStrategy[object] = st.deferred(
    lambda: SCALARS | st.lists(TREES, max_size=2) | st.dictionaries(KEYS, TREES, max_size=3)
)
RULE = st.dictionaries(st.sampled_from([*rules_file.VOCABULARY]), TREES, max_size=3)
SECTIONS = st.fixed_dictionaries(
    # mostly without the default rules: six rules to write and read again are most of the time of an example
    {"default": st.sampled_from([False, None, 0, "", [], True])},
    optional={
        "custom": st.lists(RULE, max_size=2),
        "external": st.lists(RULE, max_size=2),
        "resource": TREES,
    },
)


@pytest.mark.timeout(20)  # renders and reads a hundred charts
@given(SECTIONS)
def test_reading_values_equals_reading_what_the_chart_renders(section: dict[str, object]) -> None:
    values = yaml.safe_dump({"rules": section}, allow_unicode=True)
    direct = parse(values)
    if direct.fatal:
        return
    rendered = rules_file.parse_rules(helm_values.render_config(values), "")
    assert not rendered.fatal
    assert content(rendered.config.rules) == content(direct.config.rules)
    assert content(rendered.config.external_rules) == content(direct.config.external_rules)
    assert (rendered.config.resource_rules is None) == (direct.config.resource_rules is None)
    assert len(rendered.faults) == len(direct.faults)


@given(
    st.fixed_dictionaries({}, optional={"rules": TREES, "prometheus-adapter": TREES, "prometheus": TREES})
    | TREES
)
def test_any_tree_gives_rules_or_faults(tree: object) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True)
    helm_values.is_chart_values(text)
    for fault in (*parse(text).faults, *parse(text).fatal):
        assert len(str(fault).splitlines()) == 1


@given(st.text(alphabet="rules:custom[]{}<&*-?|>'\"! \n\t0ya\u2028", max_size=60))
def test_any_text_gives_rules_or_faults(text: str) -> None:
    assert isinstance(helm_values.is_chart_values(text), bool)
    assert isinstance(parse(text), Parsed)
