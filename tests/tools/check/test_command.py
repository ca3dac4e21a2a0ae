"""`fastpath check` without Prometheus: whole texts for our own files of every shape and fault.

`tests/data/rules/NAME.yaml` (or .json, or a folder) is checked; `NAME.out` is what it prints, `NAME.err` the
faults.
"""

import io
import json
import re
import sys
from pathlib import Path

import pytest

from adapter.cli import main
from adapter.config import rules_file
from fastpath_tools.live import chart_values as helm_values

DATA = Path(__file__).parents[2] / "data" / "rules"
FILES = sorted(path.name for path in DATA.iterdir() if path.suffix not in {".out", ".err"})


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)


def _expected(name: str, suffix: str) -> str:
    path = (DATA / name).with_suffix(suffix)
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("name", FILES)
def test_what_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    faults = _expected(name, ".err")
    status = main.main(["check", name])
    captured = capsys.readouterr()
    assert captured.out == _expected(name, ".out")
    assert captured.err == faults
    assert status == (2 if faults else 0)


def test_five_different_faults_are_five_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        """
rules:
- {seriesQuery: a, seriesFilters: [{is: '('}]}
- {seriesQuery: b, metricsQuery: '<<.Series'}
- {seriesQuery: c, resources: {overrides: {app: {resource: apps}}}}
- {seriesQuery: d, name: {matches: '(a)(b)'}}
Rules: []
"""
    )
    assert main.main(["check", str(path)]) == 2
    messages = capsys.readouterr().err.splitlines()
    assert [
        message.partition(f"{path}:")[2].partition(": ")[2].partition(": ")[0] for message in messages
    ] == [
        "rules[0].seriesFilters[0].is",
        "rules[1].metricsQuery",
        "rules[2].resources.overrides.app",
        "rules[3].name.as",
        "Rules",
    ]


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ([], ["FILE: missing: expected rules files, chart values, folders of them, or - for standard input"]),
        (["none.yaml"], ["none.yaml: expected a readable file: No such file or directory"]),
        (["pods.yaml", "--wy=load"], ["--wy: unknown flag, did you mean --why?"]),
        (
            ["pods.yaml", "--why=load"],
            ["--why: load: expected --prometheus-url too, to read the series"],
        ),
        (
            ["pods.yaml", "--print-config", "-o", "json"],
            ["--output: json: cannot be combined with --print-config"],
        ),
        (
            ["pods.yaml", "--print-config", "--strict"],
            ["--strict: cannot be combined with --print-config, which prints no warnings"],
        ),
        (
            ["pods.yaml", "--prometheus-url=http://127.0.0.1:1", "--why=load", "--strict"],
            ["--strict: cannot be combined with --why, which prints no warnings"],
        ),
    ],
    ids=[
        "no file",
        "missing file",
        "unknown flag",
        "why alone",
        "json config",
        "strict config",
        "strict why",
    ],
)
def test_a_wrong_command_line(
    arguments: list[str], faults: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["check", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err == "".join(f"fastpath check: {fault}\n" for fault in faults)


UNREACHABLE = "http://127.0.0.1:1/api/v1/series: Connection refused"
WHY = ["check", "pods.yaml", "--prometheus-url=http://127.0.0.1:1", "--why=load"]


@pytest.mark.timeout(20)  # imports and reads all that a command needs
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--object=pod/shop"], ""),
        (
            ["--object=pod//web"],
            (
                "--object: pod//web: expected KIND/NAMESPACE/NAME, KIND/NAME for a kind without namespaces, "
                "or NAMESPACE for an external metric"
            ),
        ),
        (
            ["--object=pod/shop/*"],
            "--object: pod/shop/*: expected --lister-kubeconfig too, to list the objects",
        ),
        (
            ["--object=shop", "--selector=a>1"],
            "--selector: a>1: expected neither < nor >: a gt has no form in PromQL",
        ),
        (
            ["--object=pod/shop/a", "--metric-selector=a=b=c"],
            (
                "--metric-selector: a=b=c: expected a label selector: found '=', expected: ',' or 'end of "
                "string'"
            ),
        ),
    ],
    ids=["good", "object", "all without cluster", "selector", "metric selector"],
)
def test_a_wrong_question_is_refused_before_anything_is_asked(
    arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.main([*WHY, *arguments])
    err = capsys.readouterr().err
    if fault:
        assert (status, err) == (2, f"fastpath check: {fault}\n")
    else:
        assert (status, err) == (1, f"fastpath check: cannot query Prometheus: {UNREACHABLE}\n")


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "externalRules: [{seriesQuery: up, resources: {namespaced: false}, "
        r"""metricsQuery: "up{a='\e[2J\u009b'}"}]"""
    )
    (tmp_path / "rules.yaml").write_text(text)
    main.main(["check", str(tmp_path / "rules.yaml")])
    out = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out)
    assert r"up{a='\u001b[2J\u009b'}" in out


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((DATA / "external.yaml").read_bytes())))
    assert main.main(["check", "-"]) == 0
    assert capsys.readouterr().out == _expected("external", ".out").replace("external.yaml", "<stdin>")


def test_standard_input_that_is_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert main.main(["check", "-", "external.yaml"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "fastpath check: <stdin>: expected a readable file: it is not UTF-8 text\n"
    assert captured.out == _expected("external", ".out").removesuffix("\n") + ", 1 fault\n"


def test_several_files_are_one_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "rules.json", "--config=folder/a.yaml"]) == 0
    out = capsys.readouterr().out
    assert "rules[0]  (rules.json:3)" in out
    assert "rules[0]  (folder/a.yaml:2)" in out
    assert out.endswith("2 rules, 0 external rules, 4 resource queries, 4 warnings\n")


def test_print_config_renders_chart_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "chart-values.yaml", "--print-config"]) == 0
    out = capsys.readouterr().out
    assert out == helm_values.render_config((DATA / "chart-values.yaml").read_text())
    config = rules_file.parse_rules(out, "out").config
    assert [len(config.rules), len(config.external_rules)] == [1, 1]


def test_print_config_leaves_a_rules_file_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "pods.yaml", "--print-config"]) == 0
    assert capsys.readouterr().out == (DATA / "pods.yaml").read_text()


def test_print_config_prints_no_second_document_that_serve_would_not_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.main(["check", "pods.yaml", "external.yaml", "--print-config"]) == 2
    assert "--print-config: expected one file: a rules file has one document" in capsys.readouterr().err


def test_print_config_refuses_what_the_chart_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("rules: {default: true, existing: other-config}")
    assert main.main(["check", str(path), "--print-config"]) == 2
    assert "rules.existing" in capsys.readouterr().err
    assert main.main(["check", "none.yaml", "--print-config"]) == 2
    assert "none.yaml: expected a readable file" in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "external.yaml", "mistakes-labels.yaml", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["faults"] == []
    assert [(rule["path"], rule["api"]) for rule in document["rules"]][3:] == [
        ("rules[3]", "custom.metrics.k8s.io"),
        *[(f"externalRules[{number}]", "external.metrics.k8s.io") for number in (0, 1, 0)],
    ]
    assert document["rules"][4]["examples"] == [
        {"resource": None, "promql": 'sum(queue_depth{namespace="NAMESPACE"}) by (queue)'}
    ]
    assert document["rules"][2]["examples"][1] == {
        "resource": "pods",
        "promql": 'sum(errors{namespace="NAMESPACE",pod_name="NAME"}) by (pod_name)',
        "separable": True,
        "reason": "",
    }
    first = document["rules"][0]
    assert first == {
        "path": "rules[0]",
        "file": "mistakes-labels.yaml",
        "line": 2,
        "api": "custom.metrics.k8s.io",
        "seriesQuery": 'sessions{pod!=""}',
        "series": ["sessions"],
        "metrics": ["sessions"],
        "examples": [
            {"resource": "pods", "fault": "no generic resource label form specified for this metric"},
        ],
        "warnings": [
            {
                "file": "mistakes-labels.yaml",
                "line": 3,
                "path": "rules[0].resources.overrides",
                "value": "",
                "sentence": "no label for namespaces, so namespaced objects cannot be requested: add an "
                "override for namespace",
            }
        ],
    }


def test_json_of_resource_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "resource-rules.yaml", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["path"] for each in document["resourceQueries"]] == [
        f"resourceRules.{resource}.{query}"
        for resource in ("cpu", "memory")
        for query in ("containerQuery", "nodeQuery")
    ]
    assert document["resourceQueries"][3] == {
        "path": "resourceRules.memory.nodeQuery",
        "file": "resource-rules.yaml",
        "line": 2,
        "api": "metrics.k8s.io",
        "example": {
            "resource": "nodes",
            "promql": 'sum(container_memory_working_set_bytes{node="NAME",id="/"}) by (node)',
            "separable": True,
            "reason": "",
        },
        "warnings": [],
    }


def test_scrapes_of_own_usage_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("resourceRules:\n  cpu:\n    scrape: {port: metrics}\n")
    assert main.main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"resourceRules.cpu.scrape  ({path}:2)\n")
    assert "  scrapes   http://POD:metrics/metrics each 1s, rates over 4s\n" in out
    assert out.endswith("0 rules, 0 external rules, 1 scraped resource, 0 warnings\n")
    assert main.main(["check", str(path), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["scrapedResources"] == [
        {
            "path": "resourceRules.cpu.scrape",
            "scrape": "http://POD:metrics/metrics each 1s, rates over 4s",
        }
    ]


def test_resource_rules_that_serve_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DATA / "resource-rules.yaml").read_text()
    path = tmp_path / "rules.yaml"
    path.write_text(text.replace("by (<<.GroupBy>>)", "by (pod)", 1))
    assert main.main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert (
        "  warning   sum by (pod): the result has no label container, so a pod has one container "
        "without a name\n" in out
    )
    assert out.endswith("4 resource queries, 1 warning\n")
    path.write_text(text.replace("by (<<.GroupBy>>)", "by (<<.GroupBy", 1))
    assert main.main(["check", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "0 rules, 0 external rules, 0 warnings, 1 fault\n"
    assert "resourceRules.cpu.containerQuery: " in captured.err


@pytest.mark.parametrize("name", ["mistakes-queries.yaml", "pods.yaml"])
def test_strict_warnings_count_as_faults(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = 0 if _expected(name, ".out").endswith(", 0 warnings\n") else 2
    assert main.main(["check", name, "--strict"]) == expected
    assert capsys.readouterr().out == _expected(name, ".out")


def test_files_without_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty file is half written more often than meant; an empty list says so."""
    path = tmp_path / "rules.yaml"
    path.write_text("\n")
    assert main.main(["check", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"fastpath check: {path}: expected rules; the file is empty (to remove all rules write: rules: [])\n"
    )
    path.write_text("rules: []")
    assert main.main(["check", str(path)]) == 0
    assert "  warning   the files have no rule, so nothing is served\n" in capsys.readouterr().out
    assert main.main(["check", str(path), "--strict"]) == 2


def test_json_of_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "faults-quotes.yaml", "--output=json"]) == 2
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert [(fault["file"], fault["line"]) for fault in document["faults"]] == [("faults-quotes.yaml", 2)]
    assert len(captured.err.splitlines()) == 1


def test_a_longer_scrape_interval_needs_longer_windows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "pods.yaml", "--scrape-interval=1m"]) == 0
    assert "warning   metricsQuery: [2m]: shorter than 4 scrapes of 60 s" in capsys.readouterr().out


def test_notices_of_serving_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """A whole command line of `serve` may be checked.

    What is about serving is passed over, the rest is said.
    """
    arguments = [
        "check",
        "--config=external.yaml",
        "--bind-address=0.0.0.0",
        "--prometheus-client-tls-cert-file=x",
        "--v=6",
    ]
    assert main.main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == _expected("external", ".out")
    assert captured.err.startswith("fastpath check: the client certificate for Prometheus is not used")
    assert len(captured.err.splitlines()) == 1
