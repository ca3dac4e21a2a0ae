import pytest

from adapter.config import rules_file
from adapter.config.rules_config import Parsed
from adapter.model.resources import BUILTIN
from fastpath_tools.check import command


def places(text: str) -> list[tuple[int, str]]:
    return [
        (fault.line, fault.path)
        for fault in command.collect_faults(rules_file.parse_rules(text, "rules.yaml"), BUILTIN)
    ]


CASES = {
    "none": ("rules: [{seriesQuery: a}]", []),
    "a rule that reading refuses is compiled too": (
        "rules:\n- name: {matches: '('}\n  ttl: 1y\n- metricsQuery: <<",
        [(2, "rules[0].name.matches"), (3, "rules[0].ttl"), (4, "rules[1].metricsQuery")],
    ),
    "below a broken top": (
        "rules:\n- name: {matches: '('}\nRules: []",
        [(2, "rules[0].name.matches"), (3, "Rules")],
    ),
    "an override without a resource is said once": (
        "rules:\n- resources: {overrides: {a: {}}}",
        [(2, "rules[0].resources.overrides.a.resource")],
    ),
    "a filter of both kinds is said once": (
        "rules:\n- seriesFilters: [{is: '(', isNot: b}]",
        [(2, "rules[0].seriesFilters[0]")],
    ),
    "a misspelt key is said once": (
        "rules:\n- name: {matches: '(a)(b)', az: x}",
        [(2, "rules[0].name.az")],
    ),
    "a misspelt key elsewhere does not hide it": (
        "rules:\n- name: {matches: '(a)(b)'}\n  x: y",
        [(2, "rules[0].name.as"), (3, "rules[0].x")],
    ),
    "resource rules": (
        "resourceRules:\n  cpu: {nodeQuery: <<}\n  x: y",
        [(2, "resourceRules.cpu.nodeQuery"), (3, "resourceRules.x")],
    ),
    "no YAML": ("rules: [", [(1, "")]),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_collect(text: str, expected: list[tuple[int, str]]) -> None:
    assert places(text) == expected


def test_files_stay_in_their_order() -> None:
    one = rules_file.parse_rules("\n\nrules: [{ttl: x}]", "one.yaml")
    two = rules_file.parse_rules("rules: [{ttl: x, name: {matches: '('}}]", "two.yaml")
    both = Parsed(
        rules_file.merge([one.config, two.config])[0],
        (*one.faults, *two.faults),
        readable=rules_file.merge([one.readable, two.readable])[0],
    )
    assert [(fault.source, fault.path) for fault in command.collect_faults(both, BUILTIN)] == [
        ("one.yaml", "rules[0].ttl"),
        ("two.yaml", "rules[0].ttl"),
        ("two.yaml", "rules[0].name.matches"),
    ]


def test_a_manifest_is_one_fault() -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\ndata: {}\nunknown: 1\nother: 2\n"
    found = command.collect_faults(rules_file.parse_rules(manifest, "a.yaml"), BUILTIN)
    assert [fault.path for fault in found] == ["apiVersion", "unknown", "other"]
