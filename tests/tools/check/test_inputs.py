"""What `fastpath check` takes a file for, and the places of its faults."""

import json
from collections.abc import Callable

import pytest

from adapter.config import rules_file
from adapter.config.rules_config import Parsed
from adapter.model.resources import BUILTIN
from fastpath_tools.check import command
from tests.support.simulation import Printed

Run = Callable[..., Printed]


def places(text: str) -> list[tuple[int, str]]:
    return [
        (fault.line, fault.path)
        for fault in command.collect_faults(rules_file.parse_rules(text, "rules.yaml"), BUILTIN)
    ]


LINES = """\
rules:
- seriesQuery: a
  name:
    as: x
    matches: '('
  seriesFilters:
  - is: a
  - is: '['
  resources:
    overrides:
      a:
        resource: pod
      b:
        resource: pot
  metricsQuery: <<
"""

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
    "each key has its own line": (
        LINES,
        [
            (5, "rules[0].name.matches"),
            (8, "rules[0].seriesFilters[1].is"),
            (14, "rules[0].resources.overrides.b"),
            (15, "rules[0].metricsQuery"),
        ],
    ),
    "a default has the line of what is above it": (
        "rules:\n- seriesQuery: a\n  name:\n    matches: (a)(b)\n",
        [(4, "rules[0].name.as")],
    ),
    "a key of the resource rules": (
        "resourceRules:\n  cpu:\n    containerQuery: x\n    nodeQuery: <<\n  window: 1m",
        [(4, "resourceRules.cpu.nodeQuery")],
    ),
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


@pytest.mark.parametrize(
    "kind", ["VerticalPodAutoscaler", "PrometheusRule", "ScaledJob", "List", "ConfigMap"]
)
def test_a_manifest_of_another_kind_is_named_as_such(kind: str, cli: Run) -> None:
    printed = cli("check", "-", stdin=f"apiVersion: x/v1\nkind: {kind}\nitems: []\nspec: {{groups: []}}\n")
    assert printed.status == 2
    assert "this is a Kubernetes manifest and no rules file" in printed.err
    assert len(printed.err.splitlines()) == 1


HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: app}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: app}
  maxReplicas: 10
"""
TWICE = "the key is given twice"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HPA}  maxReplicas: 9\n", TWICE),
        (f"kind: Service\n---\n{HPA}  maxReplicas: 9\n", TWICE),
        (
            f"apiVersion: v1\nkind: List\nitems:\n- {HPA.replace(chr(10), chr(10) + '  ')}  maxReplicas: 9",
            TWICE,
        ),
        ('{"kind": "HorizontalPodAutoscaler", "kind": "HorizontalPodAutoscaler"}', TWICE),
        (f"{HPA}  metrics: [\n", "not YAML"),
        (f"{HPA}  - x\n", "not YAML"),
    ],
    ids=["hpa", "second document", "list", "JSON", "no end", "no YAML"],
)
def test_an_autoscaler_that_cannot_be_read_is_no_rules_file(text: str, said: str, cli: Run) -> None:
    printed = cli("check", "-", stdin=text)
    assert (printed.status, len(printed.err.splitlines())) == (2, 1)
    assert said in printed.err


def test_rules_that_speak_of_an_autoscaler_are_rules(cli: Run) -> None:
    printed = cli(
        "check", "-", stdin="# kind: HorizontalPodAutoscaler\nrules: [{seriesQuery: a, seriesQuery: b}]"
    )
    assert "rules[0].seriesQuery: " in printed.err
    assert "this key is given twice" in printed.err


RULES = "rules: [{seriesQuery: a}]\n"
SECOND = "only the first document of a file is read: put this one into another file"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{RULES}---\n{RULES}", [3]),
        (f"---\n{RULES}---\n# nothing\n", []),
        (f"{RULES}---\na: [\n---\n{RULES}", [4, 5]),
        ("rules: {default: false, custom: []}\n---\nrules: {default: false}\n", [3]),
    ],
)
def test_documents_after_the_first_are_named(text: str, lines: list[int], cli: Run) -> None:
    warned = json.loads(cli("check", "-", "-o", "json", stdin=text).out)["warnings"]
    assert [one["line"] for one in warned if one["sentence"] == SECOND] == lines


def test_rules_beside_an_autoscaler_are_not_dropped(cli: Run) -> None:
    printed = cli("check", "-", stdin=f"{HPA}---\n{RULES}")
    assert printed.status == 2
    assert "<stdin>:8: expected objects alone: put rules into another file" in printed.err


def test_a_file_that_is_read_as_chart_values_says_so(cli: Run) -> None:
    note = (
        "<stdin>: read as values of the Helm chart; `fastpath serve` takes the rules file that "
        "--print-config makes of them"
    )
    for text in (
        "rules: {custom: []}",
        "custom: []",
        "prometheus: {}",
        "fastpath: {rules: {default: false}}",
    ):
        assert cli("check", "-", stdin=text).out.splitlines()[0] == note
        assert json.loads(cli("check", "-", "-o", "json", stdin=text).out)["notes"] == [note]
    assert note not in cli("check", "-", stdin=RULES).out
