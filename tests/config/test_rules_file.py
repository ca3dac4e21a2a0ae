"""The rules file: what is read, what is refused, and where every fault is said to be."""

import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.config import rules_file
from adapter.config.rules_config import (
    Access,
    OnNaN,
    OnWarnings,
    OverrideConfig,
    Parsed,
    ResourceRuleConfig,
    ResourceRulesConfig,
    ResourcesConfig,
    RuleConfig,
    RulesConfig,
    ScrapeConfig,
    SeriesFilter,
    UsageScrape,
)
from adapter.config.yaml import decode, reader
from tests.support.answers import answers

EVERY_FIELD = """\
rules:
- seriesQuery: 'http_requests_total{namespace!=""}'
  seriesFilters:
  - is: ^http_
  - {isNot: _created$}
  resources:
    template: kube_<<.Resource>>
    overrides:
      ns: {resource: namespace}
      deploy: {group: apps, resource: deployment}
    namespaced: false
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
  onNaN: zero
  onWarnings: accept
  ttl: 500ms
  maxAge: 1m
  maxSampleAge: 10m
externalRules:
- seriesQuery: up
resourceRules:
  cpu:
    containerQuery: c
    nodeQuery: n
    resources: {overrides: {pod: {resource: pod}}}
    containerLabel: container
  memory: {containerQuery: m}
  window: 1h30m
  onWarnings: accept
"""


def parse(text: str) -> Parsed:
    return rules_file.parse_rules(text, "f.yaml")


def only_rule(text: str) -> RuleConfig:
    parsed = parse(text)
    assert not parsed.fatal
    assert not parsed.faults
    (rule,) = parsed.config.rules
    return rule


def said(parsed: Parsed) -> list[str]:
    return [str(fault) for fault in (*parsed.fatal, *parsed.faults)]


def test_every_field_is_read() -> None:
    parsed = parse(EVERY_FIELD)
    assert not parsed.fatal
    assert not parsed.faults
    assert parsed.config == RulesConfig(
        rules=(
            RuleConfig(
                path="rules[0]",
                source="f.yaml",
                line=2,
                series_query='http_requests_total{namespace!=""}',
                series_filters=(SeriesFilter(is_="^http_"), SeriesFilter(is_not="_created$")),
                resources=ResourcesConfig(
                    "kube_<<.Resource>>",
                    (OverrideConfig("ns", "", "namespace"), OverrideConfig("deploy", "apps", "deployment")),
                    namespaced=False,
                ),
                name_matches="^(.*)_total$",
                name_as="${1}_per_second",
                metrics_query="sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
                on_nan=OnNaN.ZERO,
                on_warnings=OnWarnings.ACCEPT,
                ttl=0.5,
                max_age=60.0,
                max_sample_age=600.0,
            ),
        ),
        external_rules=(RuleConfig(path="externalRules[0]", source="f.yaml", line=20, series_query="up"),),
        resource_rules=ResourceRulesConfig(
            "resourceRules",
            ResourceRuleConfig(
                "c", "n", ResourcesConfig("", (OverrideConfig("pod", "", "pod"),)), "container"
            ),
            ResourceRuleConfig("m"),
            5400.0,
            "f.yaml",
            22,
            OnWarnings.ACCEPT,
        ),
    )


@pytest.mark.parametrize("text", answers("config/rules_file", "empty"))
def test_a_file_without_rules_is_accepted(text: str) -> None:
    assert parse(text) == Parsed(RulesConfig())


def test_only_the_first_document_is_read() -> None:
    assert only_rule("rules: [{seriesQuery: a}]\n---\nnonsense: {[\n").series_query == "a"


def test_json_with_tabs_is_yaml() -> None:
    assert only_rule('{\n\t"rules":\t[\n\t\t{"seriesQuery": "up"}\n\t]\n}\n').series_query == "up"


@pytest.mark.parametrize(("written", "text"), answers("config/rules_file", "scalars"))
def test_a_scalar_is_read_as_gos_libyaml_reads_it(written: str, text: str) -> None:
    assert only_rule(f"rules:\n- metricsQuery: {written}").metrics_query == text


def test_a_colon_before_a_bracket_belongs_to_the_word() -> None:
    assert only_rule("rules: [{name: {as: x:}}]").name_as == "x:"
    assert "unknown key" in said(parse("rules: [{name: {as: x, matches:}}]"))[0]
    assert "expected ',' or '}'" in said(parse("rules: [{resources: {overrides: {pod:{resource: pod}}}}]"))[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("%YAML 1.2\n---\nrules: []\n", "only YAML 1.1 is read", id="yaml_1_2"),
        pytest.param("%FOO bar\n---\nrules: []\n", "unknown directive", id="unknown_directive"),
        pytest.param('rules:\n- seriesQuery: "a\\/b"\n', "unknown escape character", id="escaped_slash"),
    ],
)
def test_text_that_gos_libyaml_refuses_is_refused(text: str, words: str) -> None:
    assert words in said(parse(text))[0]


def test_directives_that_are_known() -> None:
    parsed = parse("%YAML 1.1\n%TAG !e! tag:example.org,2000:\n---\nrules:\n- seriesQuery: up\n")
    assert [rule.series_query for rule in parsed.config.rules] == ["up"]


def test_a_tab_may_stand_after_a_colon_and_before_a_comment() -> None:
    assert only_rule("rules:\n- seriesQuery:\tup\t# here\n  metricsQuery:\t\tq\n").metrics_query == "q"


@pytest.mark.parametrize(("written", "text"), answers("config/rules_file", "literal"))
def test_a_text_field_keeps_the_literal_text(written: str, text: str) -> None:
    assert only_rule(f"rules:\n- metricsQuery: {written}\n").metrics_query == text


@pytest.mark.parametrize(
    ("written", "value"), [("y", True), ("On", True), ("NO", False), ("n", False), ("~", True)]
)
def test_booleans_are_those_of_yaml_1_1(written: str, value: bool) -> None:  # noqa: FBT001 - a table column
    assert only_rule(f"rules: [{{resources: {{namespaced: {written}}}}}]").resources.namespaced is value


@pytest.mark.parametrize("written", ['"true"', "1", "!!bool maybe", "[]", "{}", "ja", '"y"'])
def test_an_invalid_boolean_is_refused(written: str) -> None:
    (fault,) = parse(f"rules: [{{resources: {{namespaced: {written}}}}}]").faults
    assert (fault.path, fault.expected) == ("rules[0].resources.namespaced", "expected true or false")


def test_null_gives_zero_values_everywhere() -> None:
    rule = only_rule("rules:\n- seriesFilters:\n  resources: null\n  name: ~\n  onNaN:\n  ttl: null\n")
    assert rule == RuleConfig(path="rules[0]", source="f.yaml", line=2)
    assert only_rule("rules:\n-\n") == RuleConfig(path="rules[0]", source="f.yaml", line=2)
    assert only_rule("rules: [{resources: {overrides: ~}}]").resources == ResourcesConfig()


def test_absent_and_empty_resource_rules_differ() -> None:
    assert parse("resourceRules: null").config.resource_rules is None
    assert parse("resourceRules: {}").config.resource_rules == ResourceRulesConfig(
        "resourceRules", source="f.yaml", line=1
    )


@pytest.mark.parametrize(("written", "seconds"), [("0", 0.0), ("90s", 90.0), ("1d", 86400.0), ("~", 0.0)])
def test_window_is_a_prometheus_duration(written: str, seconds: float) -> None:
    found = parse(f"resourceRules: {{window: {written}}}").config.resource_rules
    assert found is not None
    assert found.window == seconds


@pytest.mark.parametrize("written", ["''", "60", "1.5m", "-1m", "5m1h"])
def test_a_bad_window_leaves_out_resource_rules(written: str) -> None:
    parsed = parse(f"rules: [{{}}]\nresourceRules: {{window: {written}}}")
    assert parsed.config.resource_rules is None
    assert len(parsed.config.rules) == 1
    (fault,) = parsed.faults
    assert (fault.path, fault.line) == ("resourceRules.window", 2)
    assert "Prometheus duration" in fault.expected


# --- anchors, aliases, merge keys


def test_anchors_and_aliases_work() -> None:
    text = "rules:\n- resources: &r {overrides: {pod: {resource: pod}}}\n- resources: *r\n"
    first, second = parse(text).config.rules
    assert first.resources == second.resources == ResourcesConfig("", (OverrideConfig("pod", "", "pod"),))


def test_an_anchor_defined_again_means_the_newer_from_there_on() -> None:
    text = "rules: [{seriesQuery: &a one}, {seriesQuery: *a}, {seriesQuery: &a two}, {seriesQuery: *a}]"
    assert [rule.series_query for rule in parse(text).config.rules] == ["one", "one", "two", "two"]


BASE = (
    "rules:\n- &base {seriesQuery: q, name: {matches: m, as: a}, resources: {overrides: {pod: "
    "{resource: pod}}}}\n"
)


@pytest.mark.parametrize(("entry", "expected"), answers("config/rules_file", "merge keys"))
def test_merge_keys_as_yaml_v2_applies_them(entry: str, expected: list[str] | None) -> None:
    parsed = parse(f"{BASE}- {entry}\n")
    if expected is None:
        assert [fault.path for fault in parsed.faults] == ['rules[1]["<<"]']
        return
    rule = parsed.config.rules[1]
    assert [rule.series_query, rule.name_matches, rule.name_as] == expected


def test_a_label_that_was_merged_cannot_be_given_again() -> None:
    (fault,) = parse(f"{BASE}- {{<<: *base, resources: {{overrides: {{pod: {{resource: po}}}}}}}}\n").faults
    assert fault.path == "rules[1].resources.overrides.pod"
    assert "given twice" in fault.expected
    merged = parse(f"{BASE}- {{<<: *base, resources: {{overrides: {{<<: {{n: {{resource: node}}}}}}}}}}\n")
    assert [override.label for override in merged.config.rules[1].resources.overrides] == ["pod", "n"]


@pytest.mark.parametrize("value", ["text", "[{}, text]", "[[]]"])
def test_only_mappings_can_be_merged(value: str) -> None:
    (fault,) = parse(f"rules: [{{<<: {value}}}]").faults
    assert (fault.path, fault.expected) == (
        'rules[0]["<<"]',
        "expected a mapping or a list of mappings to merge",
    )


# --- faults


def test_five_faults_are_five_lines_and_the_sound_rules_live() -> None:
    text = """\
rules:
- seriesQuery: good
- seriesFilters: [{is: a, isNot: b}]
  ttl: soon
- name:
    matches: x
    metricsQuery: sum(x)
- resources:
    overrides:
      pod: {resource: pod}
      namespaced: false
externalRules:
- seriesQuery: also good
- scrape: {interval: 1s, ports: 80, service: {namespace: a, name: b}}
"""
    parsed = parse(text)
    assert [rule.path for rule in parsed.config.rules] == ["rules[0]"]
    assert [rule.path for rule in parsed.config.external_rules] == ["externalRules[0]"]
    assert not parsed.fatal
    assert said(parsed) == [
        'f.yaml:4: rules[1].ttl: "soon": expected a Go duration such as 500ms or 1m30s, from 10ms to 5m0s',
        (
            "f.yaml:3: rules[1].seriesFilters[0]: both is and isNot: expected exactly one of is and isNot, "
            "not "
            "empty"
        ),
        (
            'f.yaml:7: rules[2].name.metricsQuery: "sum(x)": unknown key here: metricsQuery belongs in a '
            "rule, beside "
            "seriesQuery, check the indentation; name has matches, as"
        ),
        (
            "f.yaml:11: rules[3].resources.overrides.namespaced: false: namespaced belongs in resources, "
            "beside overrides: "
            "check the indentation"
        ),
        (
            "f.yaml:14: externalRules[1].scrape.ports: 80: unknown key, did you mean port? scrape has "
            "interval, window, "
            "timeout, port, path, scheme, tls, credentials, hostNetwork, maxBytes, maxLines, maxSeries, "
            "service, pods, honorLabels"
        ),
        (
            "f.yaml:14: externalRules[1].scrape.port: missing: expected a port number, or the name of a "
            "port of the Service such as "
            "metrics"
        ),
    ]


@pytest.mark.parametrize(("text", "path", "words"), answers("config/rules_file", "fatal"))
def test_faults_around_the_rules_are_fatal(text: str, path: str, words: str) -> None:
    parsed = parse(text)
    assert parsed.config == RulesConfig()
    fault = parsed.fatal[0]
    assert fault.path == path
    assert words in fault.expected


@pytest.mark.parametrize(("rule", "path", "words"), answers("config/rules_file", "faulty rules"))
def test_a_faulty_rule_is_left_out(rule: str, path: str, words: str) -> None:
    parsed = parse(f"rules:\n- seriesQuery: sound\n- {rule}\n")
    assert [found.path for found in parsed.config.rules] == ["rules[0]"]
    assert not parsed.fatal
    fault = parsed.faults[0]
    assert fault.path == f"rules[1]{path}"
    assert words in fault.expected
    assert fault.line == 3


def test_one_mistake_is_one_fault() -> None:
    parsed = parse("rules: [{resources: {overrides: {pod: pod}}, seriesFilters: [a]}]")
    assert len(parsed.faults) == 2


def test_equal_ttl_and_max_age_are_fine() -> None:
    assert only_rule("rules: [{ttl: 1m, maxAge: 1m}]").ttl == 60.0


def test_faults_of_rules_are_shown_beside_fatal_ones() -> None:
    parsed = parse("Rules: []\nexternalRules: [{onNaN: x}]")
    assert [fault.path for fault in parsed.fatal] == ["Rules"]
    assert [fault.path for fault in parsed.faults] == ["externalRules[0].onNaN"]
    assert parsed.config == RulesConfig()


@pytest.mark.parametrize(
    "rules",
    ["[]", "{cpu: text}", "{cpu: {onNaN: zero}}", "{gpu: {}}", "{cpu: {resources: {overrides: {a: {}}}}}"],
)
def test_faulty_resource_rules_are_left_out(rules: str) -> None:
    parsed = parse(f"resourceRules: {rules}")
    assert parsed.config.resource_rules is None
    assert parsed.faults
    assert all(fault.path.startswith("resourceRules") for fault in parsed.faults)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("rules: [", 1, "not YAML", id="open bracket"),
        pytest.param("rules:\n\t- a: b\n", 2, "indent with spaces, not tabs", id="tab"),
        pytest.param(
            'rules:\n- metricsQuery: "sum(x{a="b"})"\n',
            2,
            "between single quotes",
            id="double quotes in double quotes",
        ),
        pytest.param("rules:\n- name: a: b\n", 2, "contains a colon and a space", id="colon in text"),
        pytest.param("rules: *unknown\n", 1, "undefined alias", id="unknown anchor"),
        pytest.param("a: 1\nrules: \x01", 2, "U+0001", id="control character"),
        pytest.param('rules: "\\ud83d\\ude00"', 1, "names no Unicode character", id="surrogates"),
        pytest.param('rules: "\\U00110000"', 0, "names no Unicode character", id="beyond Unicode"),
        pytest.param('rules: "\\UFFFFFFFF"', 0, "names no Unicode character", id="far beyond Unicode"),
        pytest.param("&a [*a]", 1, "alias of itself", id="anchor in itself"),
        pytest.param("[" * 200, 1, "levels deep", id="deep"),
        pytest.param("[" * 102 + "]" * 102, 1, "levels deep", id="somewhat deep"),
        pytest.param("[" * 101 + "]" * 101, 1, "expected a mapping", id="not too deep"),
        pytest.param(
            "\n".join(f"x{n}: &a{n} [*a{n - 1}]" if n else "x0: &a0 1" for n in range(102)),
            0,
            "levels deep",
            id="deep by aliases",
        ),
        pytest.param("%YAML 3.0\n---\na", 1, "not YAML", id="other YAML"),
    ],
)
def test_invalid_yaml_is_fatal(text: str, line: int, words: str) -> None:
    parsed = parse(text)
    assert parsed.config == RulesConfig()
    (fault,) = parsed.fatal
    assert words in fault.expected
    assert (fault.line, fault.source) == (line, "f.yaml")
    assert "\n" not in str(fault)


def test_aliases_of_aliases_are_bounded() -> None:
    lines = ["x: &l0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9)]
    (fault,) = parse("\n".join(lines)).fatal
    assert "aliases repeat more than" in fault.expected


def test_a_reader_without_marks_still_names_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise yaml.MarkedYAMLError

    monkeypatch.setattr(reader, "_Loader", refuse)
    (fault,) = parse("a: b").fatal
    assert (fault.line, fault.expected) == (0, "not YAML: not YAML")


@pytest.mark.parametrize(("node", "text"), answers("config/rules_file", "shown"))
def test_what_stands_there_is_shown_shortly(node: str, text: str) -> None:
    root = reader.compose(node, "")
    assert root is not None
    assert reader.shown(root) == text


def test_unset_fields_of_a_shape_are_empty() -> None:
    fields = decode.Fields(decode.Decoder("", {}), "rules[0]", 3)
    assert fields.text("ttl") == ""
    assert fields.struct("name").path == "rules[0].name"


# --- several files


def test_files_are_joined_in_order() -> None:
    configs = [
        rules_file.parse_rules("rules: [{seriesQuery: a}]\nexternalRules: [{seriesQuery: x}]", "one").config,
        rules_file.parse_rules("rules: [{seriesQuery: b}]\nresourceRules: {window: 1m}", "two").config,
        RulesConfig(),
    ]
    joined, faults = rules_file.merge(configs)
    assert [(rule.source, rule.series_query) for rule in joined.rules] == [("one", "a"), ("two", "b")]
    assert [rule.series_query for rule in joined.external_rules] == ["x"]
    assert joined.resource_rules is not None
    assert joined.resource_rules.source == "two"
    assert faults == ()
    assert rules_file.merge([]) == (RulesConfig(), ())


def test_resource_rules_are_given_once() -> None:
    configs = [rules_file.parse_rules(f"resourceRules: {{window: {n}m}}", f"f{n}").config for n in (1, 2, 3)]
    joined, faults = rules_file.merge(configs)
    assert joined.resource_rules is not None
    assert joined.resource_rules.window == 60.0
    assert [str(fault) for fault in faults] == [
        f"f{n}:1: resourceRules: given already in f1:1: expected in one file only" for n in (2, 3)
    ]


# --- any text

YAML_SIGNS = st.text(
    alphabet=string.ascii_letters[:6] + "01:-?[]{},&*!|>'\"%@`#~<\\ \n\t\r.=\u0085\u2028\U0001f600",
    max_size=80,
)
WORDS = st.sampled_from(
    [
        *rules_file.VOCABULARY,
        *(
            "<<",
            "*a",
            "&a ",
            "!!binary ",
            "!!int ",
            "null",
            "~",
            "true",
            "[",
            "]",
            "{",
            "}",
            ":",
            ": ",
            ", ",
            "- ",
        ),
        *("\n", "\n  ", "\n- ", "\n    ", "'", '"', "x", "5m", "---\n", "|\n", "\\ud800", "? "),
    ]
)


def check_parsed(parsed: Parsed) -> None:
    assert isinstance(parsed, Parsed)
    for fault in (*parsed.faults, *parsed.fatal):
        assert fault.expected
        assert len(str(fault).splitlines()) == 1
        assert len(fault.value) < 200
    usable = {rule.path for rule in (*parsed.config.rules, *parsed.config.external_rules)}
    assert not any(
        fault.path == path or fault.path.startswith(f"{path}.") for fault in parsed.faults for path in usable
    )


@given(YAML_SIGNS)
def test_any_text_gives_rules_or_faults(text: str) -> None:
    check_parsed(parse(text))


@given(st.lists(WORDS, max_size=30).map("".join))
def test_any_words_give_rules_or_faults(text: str) -> None:
    check_parsed(parse(text))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["1m", "zero", "is", "pod"])
)
KEYS = st.sampled_from([*rules_file.VOCABULARY, "is", "isNot", "group", "resource", "pod"]) | st.text(
    max_size=4
)
TREES: st.SearchStrategy[object] = st.deferred(
    lambda: SCALARS | st.lists(TREES, max_size=2) | st.dictionaries(KEYS, TREES, max_size=3)
)


@given(st.fixed_dictionaries({"rules": st.lists(st.dictionaries(KEYS, TREES, max_size=4), max_size=3)}))
def test_any_tree_gives_rules_or_faults(tree: dict[str, object]) -> None:
    check_parsed(parse(yaml.safe_dump(tree, allow_unicode=True)))


def test_resources_may_be_scraped_without_a_query() -> None:
    parsed = parse("resourceRules: {cpu: {scrape: {port: metrics, query: 'up', container: app}}}")

    assert parsed.faults == ()
    rules = parsed.config.resource_rules
    assert rules is not None
    assert rules.cpu.scrape == UsageScrape(ScrapeConfig(Access("metrics"), 4.0), "up", "app")
    assert not parsed.config.serves_usages


def test_memory_is_not_scraped() -> None:
    parsed = parse("resourceRules: {cpu: {scrape: {port: metrics}}, memory: {scrape: {port: metrics}}}")

    (fault,) = parsed.faults
    assert (fault.path, fault.expected) == (
        "resourceRules.memory.scrape",
        "this is for resourceRules.cpu: pods do not expose the working set of their containers",
    )


def test_resource_rules_with_a_query_are_served() -> None:
    config = parse("resourceRules: {cpu: {containerQuery: x, scrape: {port: metrics}}}").config

    assert config.serves_usages


@pytest.mark.parametrize(("keys", "place"), answers("config/rules_file", "keys of a scraped resource"))
def test_keys_that_do_not_fit_a_scraped_resource(keys: str, place: str) -> None:
    parsed = parse(f"resourceRules: {{cpu: {{scrape: {{{keys}}}}}}}")

    assert [fault.path for fault in parsed.faults] == [place]
    assert parsed.config.resource_rules is None
