"""Alerts fire and stay silent as promtool says, name what exists, and have a runbook."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.telemetry import metrics
from scripts.generate import docs
from tests.monitoring import expressions
from tests.support import rendered, tools
from tests.telemetry import test_doubts

ROOT = Path(__file__).parent.parent.parent
TESTS = Path(__file__).parent / "alerts.yaml"
ALERTS = ROOT / "manifests" / "chart" / "files" / "alerts" / "prometheusrule.yaml"
RUNBOOKS = ROOT / "docs" / "guides" / "runbooks.md"

JSON = dict[str, Any]
OBJECT: JSON = yaml.load(ALERTS.read_text(), yaml.CSafeLoader)
RULES: list[JSON] = [rule for group in OBJECT["spec"]["groups"] for rule in group["rules"]]
NAMES = list(dict.fromkeys(rule["alert"] for rule in RULES))
UNIT_TESTS: JSON = yaml.load(TESTS.read_text(), yaml.CSafeLoader)
FAULTS = {"prometheus", "discovery", "config", "config-reload", "no-series", "installation"}
"""The problems that alerts name; `no-series`, which a rule for an optional program may have, fires none."""

by_rule = pytest.mark.parametrize(
    "rule", RULES, ids=[f"{rule['alert']}-{rule['labels']['severity']}" for rule in RULES]
)


def run_promtool(directory: Path, rules: Sequence[JSON], tests: JSON) -> list[str]:
    """Run unit tests on each of some files of rules; return SUCCESS or FAILED of each."""
    promtool = tools.require("promtool", "prometheus")
    names = [f"{number}.json" for number in range(len(rules))]
    for name, each in zip(names, rules, strict=True):
        (directory / f"rules-{name}").write_text(json.dumps(each))
        (directory / name).write_text(json.dumps({**tests, "rule_files": [f"rules-{name}"]}))
    command = [promtool, "test", "rules", *names]
    done = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    outcomes = re.findall(r"^  (SUCCESS|FAILED)", done.stdout, re.MULTILINE)
    assert len(outcomes) == len(rules), done.stdout
    return outcomes


def test_each_test_is_of_an_alert() -> None:
    assert {test["name"].partition(" ")[0] for test in UNIT_TESTS["tests"]} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_is_tested_firing_and_silent(name: str) -> None:
    cases = [
        case
        for test in UNIT_TESTS["tests"]
        if test["name"].startswith(f"{name} ")
        for case in test["alert_rule_test"]
    ]
    assert {case["alertname"] for case in cases} == {name}
    assert any(case["exp_alerts"] for case in cases)
    assert any(not case["exp_alerts"] for case in cases)


def mutants(rule: JSON) -> Iterator[JSON]:
    """Yield rules with another threshold, comparison or duration; the tests of the alert must fail."""
    expr, duration = rule["expr"].strip(), rule["for"]
    threshold = re.search(r"([<>]) (-?[\d.]+)$", expr)
    if threshold is None:
        assert " > " in expr or "\n  > " in expr
        yield {**rule, "expr": expr.replace("> ", "< ")}
        yield {**rule, "expr": expr.replace("> ", ">= ")}
    else:
        value = float(threshold[2])
        for other in (value * 10, value / 10) if value > 1 else (value + 1, value - 1):
            yield {**rule, "expr": f"{expr[: threshold.start(2)]}{other:g}"}
    minutes = int(duration.removesuffix("m"))
    yield {**rule, "for": f"{minutes * 10}m"}
    yield {**rule, "for": "0m"}


DOWN = "FastpathDown"


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_and_stays_silent_and_no_other_threshold_does(name: str, tmp_path: Path) -> None:
    tests = [test for test in UNIT_TESTS["tests"] if test["name"].startswith(f"{name} ")]
    own = [rule for rule in RULES if rule["alert"] == name]
    mutated = [
        [mutant if rule is changed else rule for rule in own]
        for changed in own
        for mutant in mutants({**changed, "expr": _first_threshold(changed)})
    ]
    assert len(mutated) >= 4
    files = [{"groups": [{"name": "own", "rules": rules}]} for rules in (own, *mutated)]
    silent, *noticed = run_promtool(tmp_path, files, UNIT_TESTS | {"tests": tests})
    assert silent == "SUCCESS"
    for rules, outcome in zip(mutated, noticed, strict=True):
        assert outcome == "FAILED", rules


def _first_threshold(rule: JSON) -> str:
    """Return an expression that ends with its threshold: of several parts the first, which has it."""
    expr: str = rule["expr"].strip()
    if rule["alert"] != DOWN:
        return expr
    first, _, rest = expr.partition("\n")
    return f"({rest.strip().removeprefix('or').strip()})\n or {first}"


# --- what expressions name ---------------------------------------------------------------------------------


@by_rule
def test_expressions_name_metrics_and_labels_that_exist(rule: JSON) -> None:
    labels = expressions.labels_of(rule["expr"])
    text = " ".join(rule["annotations"].values())
    named = set(re.findall(r"\$labels\.(\w+)", text))
    optional = {"command"} if rule["alert"] == DOWN else set()
    assert named - optional <= labels or rule["alert"] == "FastpathValuesStale"


def test_an_unknown_metric_or_label_is_noticed() -> None:
    with pytest.raises(KeyError, match="fastpath_nothing"):
        expressions.labels_of("sum(fastpath_nothing)")
    for wrong in ('fastpath_ready{verb="x"}', "sum by (verb) (fastpath_ready)", "up and on (verb) up"):
        with pytest.raises(AssertionError, match="verb"):
            expressions.labels_of(wrong)


def test_series_of_the_tests_have_the_labels_that_are_exported() -> None:
    """A test with labels that no pod exports would prove nothing."""
    for test in UNIT_TESTS["tests"]:
        for each in test["input_series"]:
            name, _, matchers = each["series"].partition("{")
            labels = set(re.findall(r"(\w+)=", matchers))
            assert labels <= expressions.KNOWN[name], each["series"]
            own = expressions.KNOWN[name] - expressions.TARGET_LABELS
            assert own <= labels, each["series"]


def test_problems_that_alerts_name_are_reported() -> None:
    named = set()
    for rule in RULES:
        for faults in re.findall(r'fault!?[=~]+"([^"]+)"', rule["expr"]):
            named |= set(faults.split("|"))
    assert named == FAULTS
    reported = {fault for path in (ROOT / "adapter").rglob("*.py") for fault in test_doubts.reported(path)}
    assert named <= reported


@by_rule
def test_conventions_of_alerts(rule: JSON) -> None:
    assert rule["alert"].startswith("Fastpath")
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/guides/runbooks.md#{rule['alert'].lower()}"
    assert rule["annotations"]["summary"].endswith(".")
    assert re.fullmatch(r"\d+m", rule["for"])


# --- runbooks ----------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.*)$", RUNBOOKS.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


SYMPTOMS = ["NamespaceTerminating"]
"""The sections about what no alert tells."""


def test_each_alert_has_a_section_and_each_section_an_alert() -> None:
    assert list(sections()) == NAMES + SYMPTOMS


@pytest.mark.parametrize("name", NAMES + SYMPTOMS)
def test_a_section_begins_with_a_command_that_the_parser_accepts(name: str) -> None:
    first = sections()[name].strip("\n").split("\n", 1)[0]
    program, verb, *arguments = shlex.split(first)
    assert first.startswith("    ")
    assert program == "fastpath"
    (command,) = (each for each in docs.COMMANDS if each.verb == verb)
    example = ROOT / "docs" / "examples" / "all-keys.yaml"
    command.parse([argument.replace("rules.yaml", str(example)) for argument in arguments])


def test_the_page_lists_every_alert_with_its_severities() -> None:
    page = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    rows = dict(re.findall(r"^\| \[(\w+)\]\([^)]*\) \| ([a-z, ]+) \|", page, re.MULTILINE))
    severities: dict[str, list[str]] = {}
    for rule in RULES:
        severities.setdefault(rule["alert"], []).append(rule["labels"]["severity"])
    assert {name: text.split(", ") for name, text in rows.items()} == severities


def test_the_base_of_runbooks_can_be_set_as_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    (snippet,) = re.findall(r"```yaml\n(replacements:\n.*?)```", page, re.DOTALL)
    (resource,) = re.findall(r"```yaml\n(apiVersion: v1\nkind: ConfigMap\n.*?)```", page, re.DOTALL)
    (tmp_path / "runbooks.yaml").write_text(resource)
    component = rendered.relative_path(rendered.MANIFESTS / "components" / "alerts", tmp_path)
    text = yaml.safe_dump({"resources": ["runbooks.yaml"], "components": [component]})
    (tmp_path / "kustomization.yaml").write_text(text + snippet)
    objects = rendered.render(tmp_path)
    base = yaml.safe_load(resource)["data"]["base"]
    for group in objects.one("PrometheusRule")["spec"]["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["runbook_url"] == f"{base}#{rule['alert'].lower()}"
    assert not [each for each in objects.all("ConfigMap") if each["metadata"]["name"] == "runbooks"]


def test_values_of_the_table_that_alerts_compare_exist() -> None:
    """Outcomes and codes in matchers are values of their label."""
    (row,) = (row for row in metrics.METRICS if row.name == "fastpath_writes_total")
    outcomes = dict(zip(row.labels, row.values, strict=True))["outcome"]
    (rule,) = (rule for rule in RULES if rule["alert"] == "FastpathWritesFail")
    (named,) = re.findall(r'outcome=~"([^"]+)"', rule["expr"])
    assert set(named.split("|")) <= set(outcomes)
