"""The rules file: what is read, what is refused, and where every fault is said to be."""

import dataclasses
import enum
import itertools
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.config import rules_file
from adapter.config.rules_config import Parsed, RuleConfig, RulesConfig
from adapter.config.yaml import decode, reader
from adapter.model.objects.label_selectors import LabelSelector
from tests.support.answers import answers
from tests.support.scripts import Recorded

DOCUMENTS = Path(__file__).parent / "documents"
PLACE = {"path", "source", "line"}


def parse(text: str) -> Parsed:
    return rules_file.parse_rules(text, "f.yaml")


def only_rule(text: str) -> RuleConfig:
    parsed = parse(text)
    assert not parsed.fatal
    assert not parsed.faults
    (rule,) = parsed.config.rules
    return rule


def meaning(value: object) -> str:
    """Return what is written: the fields that are not as if nothing had been."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple | frozenset):
        return f"[{', '.join(map(meaning, sorted(value) if isinstance(value, frozenset) else value))}]"
    if isinstance(value, LabelSelector) or not dataclasses.is_dataclass(value):
        return str(value) if isinstance(value, LabelSelector) else repr(value)
    place = PLACE if hasattr(value, "line") else set()
    fields = [each for each in dataclasses.fields(value) if each.compare and each.name not in place]
    known = ((each.name, getattr(value, each.name), each.default) for each in fields)
    return f"{{{', '.join(f'{name}: {meaning(each)}' for name, each, unset in known if each != unset)}}}"


def read(text: str) -> list[str]:
    parsed = parse(text)
    config = parsed.config
    rules = [*config.rules, *config.external_rules]
    found = [f"{rule.source}:{rule.line}: {rule.path}: {meaning(rule)}" for rule in rules]
    if config.resource_rules is not None:
        resource, served = config.resource_rules, "served" if config.serves_usages else "not served"
        found.append(f"{resource.source}:{resource.line}: {resource.path}: {meaning(resource)}, {served}")
    found += [f"fault {fault}" for fault in parsed.faults]
    return [*found, *(f"fatal {fault}" for fault in parsed.fatal)] or ["nothing"]


@pytest.mark.parametrize("path", sorted(DOCUMENTS.iterdir()), ids=lambda path: path.name)
def test_documents(path: Path, recorded: Recorded) -> None:
    """Lines after `> ` are a file, and below them is what it says: rules, and faults."""
    said: list[str] = []
    for written, lines in itertools.groupby(path.read_text().splitlines(), lambda line: line.startswith(">")):
        texts = list(lines)
        said += texts if written else [each for each in texts if each.startswith("#")]
        said += read("".join(f"{each[2:]}\n" for each in texts)) if written else []
    recorded(path, "".join(f"{line}\n" for line in said))


@pytest.mark.parametrize("text", answers("config/rules_file", "empty"))
def test_a_file_without_rules_is_accepted(text: str) -> None:
    assert parse(text) == Parsed(RulesConfig())


@pytest.mark.parametrize(("written", "text"), answers("config/rules_file", "scalars"))
def test_a_scalar_is_read_as_gos_libyaml_reads_it(written: str, text: str) -> None:
    assert only_rule(f"rules:\n- metricsQuery: {written}").metrics_query == text


@pytest.mark.parametrize(("written", "text"), answers("config/rules_file", "literal"))
def test_a_text_field_keeps_the_literal_text(written: str, text: str) -> None:
    assert only_rule(f"rules:\n- metricsQuery: {written}\n").metrics_query == text


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


# --- faults


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


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("a: 1\nrules: \x01", 2, "U+0001", id="control character"),
        pytest.param("[" * 200, 1, "levels deep", id="deep"),
        pytest.param("[" * 102 + "]" * 102, 1, "levels deep", id="somewhat deep"),
        pytest.param("[" * 101 + "]" * 101, 1, "expected a mapping", id="not too deep"),
        pytest.param(
            "\n".join(f"x{n}: &a{n} [*a{n - 1}]" if n else "x0: &a0 1" for n in range(102)),
            0,
            "levels deep",
            id="deep by aliases",
        ),
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
SIGNS = "<< *a null ~ true [ ] { } : ' \" x 5m \\ud800"
WORDS = st.sampled_from(
    [
        *rules_file.VOCABULARY,
        *SIGNS.split(),
        *("&a ", "!!binary ", "!!int ", ": ", ", ", "- ", "? "),
        *("\n", "\n  ", "\n- ", "\n    ", "---\n", "|\n"),
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


@pytest.mark.parametrize(("keys", "place"), answers("config/rules_file", "keys of a scraped resource"))
def test_keys_that_do_not_fit_a_scraped_resource(keys: str, place: str) -> None:
    parsed = parse(f"resourceRules: {{cpu: {{scrape: {{{keys}}}}}}}")

    assert [fault.path for fault in parsed.faults] == [place]
    assert parsed.config.resource_rules is None
