import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import main as cli
from fastpath_tools import evaluate, evaluate_document
from fastpath_tools.evaluate_document import ControllerOptions, EvaluateDocument

_ROOT = Path(__file__).parents[2]
_LINES = (_ROOT / "tests/data/hpa-evaluate/hpa-evaluate.jsonl").read_text("utf-8").splitlines()
_CASES = [json.loads(line) for line in _LINES[:6]]
_INPUTS = [case["case"] for case in _CASES]
_YAML = """\
now: 2026-11-20T12:00:00.5Z
hpa:
  metadata: {name: web}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    maxReplicas: 5
    metrics:
    - type: External
      external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 1}}
  status:
    lastScaleTime: 2026-11-20T11:00:00Z
scale:
  spec: {replicas: 2}
  status: {replicas: 2, selector: app=web}
pods:
- metadata: {name: a, labels: {app: web}}
  status: {startTime: 2026-11-20T11:00:00Z}
metrics:
  external:
  - {metricName: queue, value: 3.5, timestamp: 2026-11-20T12:00:00Z}
"""


def _run(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = cli.main(["evaluate", *arguments])
    out, err = capfd.readouterr()
    return status, out, err


def _json_lines() -> list[str]:
    return [json.dumps(each) for each in _INPUTS]


def _write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.fixture
def stdin() -> Any:
    """Return a function that puts bytes on standard input, of which the descriptor is read."""
    kept = os.dup(0)

    def put(text: bytes) -> None:
        read, write = os.pipe()
        os.write(write, text)
        os.close(write)
        os.dup2(read, 0)
        os.close(read)

    yield put
    os.dup2(kept, 0)
    os.close(kept)


def test_a_json_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run([_write(tmp_path / "a.json", json.dumps(_INPUTS[0], indent=1))], capfd)

    assert (status, err) == (0, "")
    assert json.loads(out)["desiredReplicas"] == _CASES[0]["expected"]["desiredReplicas"]
    assert json.loads(out)["name"] == _INPUTS[0]["name"]


def test_a_yaml_file_with_unquoted_times(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run([_write(tmp_path / "a.yaml", _YAML)], capfd)

    assert (status, err) == (0, "")
    assert json.loads(out)["desiredReplicas"] == 4


def test_yaml_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path / "a.yaml", f"{_YAML}---\n{_YAML}name: second\n")

    status, out, _ = _run(["-o", "yaml", path], capfd)

    first, second = yaml.safe_load_all(out)
    assert status == 0
    assert first["status"]["currentMetrics"][0]["external"]["current"] == {"averageValue": "1750m"}
    assert (first["desiredReplicas"], second["name"]) == (4, "second")


def test_documents_in_order_from_all_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    several = "---\n".join(f"{_YAML}name: {name}\n" for name in ("a", "b"))
    files = [_write(tmp_path / "a.yaml", several), _write(tmp_path / "b.json", json.dumps(_INPUTS[0]))]

    status, out, _ = _run(files, capfd)

    assert status == 0
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["a", "b", "case-000000"]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input(
    arguments: list[str], stdin: Callable[[bytes], None], capfd: pytest.CaptureFixture[str]
) -> None:
    stdin(_YAML.encode())

    status, out, _ = _run(arguments, capfd)

    assert (status, json.loads(out)["desiredReplicas"]) == (0, 4)


def test_explains(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = _run(["--explain", _write(tmp_path / "a.yaml", f"{_YAML}---\n{_YAML}")], capfd)

    assert status == 0
    assert out.startswith(
        "web: scales from 2 to 4\n\n"
        "  Deployment/default/web: spec.replicas 2, status.replicas 2, allowed 1 to 5\n"
    )
    assert out.count("\n\nweb: scales from 2 to 4\n") == 1
    assert "  3.5 / 1 = 3.5, rounded up to 4\n" in out


def test_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = "\n".join(_json_lines())

    status, out, err = _run(["--jsonl", _write(tmp_path / "a.jsonl", f"{lines}\n\n")], capfd)

    results = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert [each["name"] for each in results] == [each["name"] for each in _INPUTS]
    assert [each["desiredReplicas"] for each in results] == [
        case["expected"]["desiredReplicas"] for case in _CASES
    ]


def test_an_invalid_line_has_its_line(
    stdin: Callable[[bytes], None], capfd: pytest.CaptureFixture[str]
) -> None:
    bad = {**_INPUTS[1], "now": "noon"}
    refused = {**_INPUTS[2], "hpa": {**_INPUTS[2]["hpa"], "spec": {"maxReplicas": 0}}}
    stdin(
        b"\n".join(
            [
                *(json.dumps(each).encode() for each in (_INPUTS[0], bad, refused)),
                b"{",
                b'{"name": "x"}',
                json.dumps(_INPUTS[3]).encode(),
            ]
        )
    )

    status, out, err = _run(["--jsonl"], capfd)

    results = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (2, "")
    assert [each["name"] for each in results] == [
        "case-000000",
        "case-000001",
        "case-000002",
        None,
        "x",
        "case-000003",
    ]
    assert results[1] == {
        "name": "case-000001",
        "invalid": 'now: "noon": "noon" is not an RFC 3339 time such as 2026-01-31T12:00:00.5Z',
    }
    assert results[2]["invalid"].startswith(
        "hpa.spec.maxReplicas: Invalid value: 0: must be greater than 0; hpa.spec.maxReplicas: Invalid "
        "value: 0: must be"
    )
    assert results[3]["invalid"].startswith("not JSON: ")
    assert results[4]["invalid"] == "now: absent: it is required"
    assert "invalid" not in results[5]


def test_a_file_that_has_no_json_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path / "friday.yaml", "now: 2026-01-31T12:00:00Z\nhpa: {}\n")

    status, out, err = _run(["--jsonl", path], capfd)

    assert (status, len(out.splitlines())) == (2, 2)
    assert err == (
        f"fastpath evaluate: {path}: expected a JSON document on each line: "
        "give YAML, or JSON over several lines, without --jsonl\n"
    )


@pytest.mark.parametrize("text", ["kind: {}\nspec: {{}}\n", '{{"kind": "{}", "spec": {{}}}}'])
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("HorizontalPodAutoscaler", "it belongs under hpa"),
        ("Deployment", "its key is hpa, scale or an item of pods"),
    ],
)
def test_an_object_of_the_cluster_in_place_of_a_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, kind: str, place: str
) -> None:
    path = _write(tmp_path / "hpa.yaml", text.format(kind))

    status, out, err = _run([path], capfd)

    assert (status, out) == (2, "")
    assert err.endswith(
        f'kind: "{kind}": expected a document with now, hpa and scale, not a single object: {place} '
        "(docs/guides/evaluate.md)\n"
    )


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_lines_are_answered_as_they_come() -> None:
    command = [sys.executable, "-m", "adapter", "evaluate", "--jsonl"]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for each in _INPUTS[:3]:
            process.stdin.write(json.dumps(each).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["name"] == each["name"]
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", [[], ["-o", "yaml"], ["--explain"]])
def test_names_in_any_script_in_any_locale(form: list[str], tmp_path: Path) -> None:
    path = _write(tmp_path / "a.yaml", f"{_YAML}name: 日本\n")
    command = [sys.executable, "-m", "adapter", "evaluate", *form, path]

    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert "日本" in done.stdout.decode()


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_a_reader_that_has_seen_enough_is_no_traceback(tmp_path: Path) -> None:
    path = _write(tmp_path / "many.jsonl", "\n".join(_json_lines() * 300))
    command = [sys.executable, "-m", "adapter", "evaluate", "--jsonl", path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=_ROOT, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"name":"case-000000"')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _YAML.replace("maxReplicas: 5", "maxReplicas: five"),
            ':6: hpa.spec.maxReplicas: "five": expected an integer, got text',
        ),
        (
            _YAML.replace("maxReplicas: 5", "maxReplicas: 0"),
            ":6: hpa.spec.maxReplicas: Invalid value: 0: must be greater than 0",
        ),
        (
            _YAML.replace("value: 3.5", "value: .inf"),
            ":20: metrics.external[0].value: Infinity: quantities must match",
        ),
        (_YAML.replace("scale:", "Scale:"), ":1: scale: absent: it is required"),
        ("a: [", ":1: not YAML"),
        ("", ": expected a document; the file is empty"),
        ("# nothing\n---\n", ": expected a document; the file is empty"),
        (b"a: \xff", ": not UTF-8: invalid start byte at byte 3"),
        ("{", ": not JSON: "),
        ('{"now": 5}', ": now: 5: expected an RFC 3339 time"),
        ("[]", ":1: the document: []: expected an object, got a list"),
    ],
)  # fmt: skip
def test_says_what_is_wrong(
    text: str | bytes, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = _write(tmp_path / "a.yaml", text)

    status, out, err = _run([path], capfd)

    assert (status, out) == (2, "")
    assert err.startswith(f"fastpath evaluate: {path}{said}")
    assert "Traceback" not in err


def test_others_are_evaluated_all_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = f"{_YAML}---\nnow: 5\n---\n{_YAML}"

    status, out, err = _run([_write(tmp_path / "a.yaml", text)], capfd)

    assert (status, len(out.splitlines())) == (2, 2)
    assert ":22: now: 5: expected an RFC 3339 time" in err


def test_yaml_in_braces_and_several_json_documents(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = json.dumps(_INPUTS[0])
    flow = _write(tmp_path / "flow.yaml", one.replace('"now":', "now:"))
    several = _write(tmp_path / "several.yaml", f"{one}\n---\n{one}\n")

    assert _run([flow], capfd)[0] == 0
    status, out, _ = _run([several], capfd)
    assert (status, len(out.splitlines())) == (0, 2)


def test_lines_without_the_flag(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path / "a.jsonl", "\n".join(_json_lines()))

    status, out, err = _run([path], capfd)

    assert (status, out) == (2, "")
    assert err.startswith(f"fastpath evaluate: {path}: not JSON: ")
    assert err.endswith("; JSON documents on lines of their own need --jsonl\n")


def test_a_bad_document_after_a_good_one_is_reported_by_its_own_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = _run([_write(tmp_path / "a.yaml", f"{json.dumps(_INPUTS[0])}\n---\na: [\n")], capfd)

    assert (status, len(out.splitlines())) == (2, 1)
    assert "a.yaml:4: not YAML: " in err


def test_a_terminal_gets_indented_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)

    assert _run([_write(tmp_path / "a.yaml", _YAML)], capfd)[0] == 0

    assert '\n  "desiredReplicas": 4,\n' in terminal.getvalue()


def test_a_file_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = _run(["/nowhere/a.yaml"], capfd)

    said = "fastpath evaluate: /nowhere/a.yaml: expected a readable file: No such file or directory\n"
    assert (status, err) == (2, said)


@pytest.mark.parametrize("other", [["--explain"], ["-o", "yaml"]])
def test_lines_have_one_form(other: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = _run(["--jsonl", *other], capfd)

    assert status == 2
    assert err == "fastpath evaluate: --jsonl: writes one JSON result a line: without --explain and -o yaml\n"


def test_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "--help"]) == 0
    assert "--jsonl" in capfd.readouterr().out


def _blocks(language: str) -> list[str]:
    text = (_ROOT / "docs" / "guides" / "evaluate.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_documented_example(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ((written,), (shown,)) = _blocks("yaml"), _blocks("text")
    assert (_ROOT / "docs" / "examples" / "evaluate" / "friday.yaml").read_text("utf-8") == written
    complete = written.replace(
        "- {<<: *sample, metadata: {name: web-2}}",
        "- {<<: *sample, metadata: {name: web-2}}\n  - {<<: *sample, metadata: {name: web-3}}",
    )

    status, out, _ = _run(["--explain", _write(tmp_path / "friday.yaml", written)], capfd)
    with_sample = _run(["--explain", _write(tmp_path / "better.yaml", complete)], capfd)[1]

    assert (status, out) == (0, shown)
    assert with_sample.startswith("friday: scales from 4 to 5\n")


def test_the_documented_traces_are_real() -> None:
    text = (_ROOT / "docs" / "guides" / "evaluate.md").read_text("utf-8")
    (table,) = re.findall(r"^\| what the trace says .*?\n\n", text, re.DOTALL | re.MULTILINE)
    said = re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)
    read = [evaluate_document.read_json(json.dumps(json.loads(line)["case"]).encode()) for line in _LINES]
    steps = {step.text() for each in read for step in evaluate.evaluate(each).trace}

    assert len(said) == 8
    for phrase in said:
        pattern = re.compile(re.sub(r"\d+", r"\\d+", re.escape(phrase)))
        assert any(map(pattern.search, steps)), phrase


def test_every_field_is_documented() -> None:
    text = (_ROOT / "docs" / "guides" / "evaluate.md").read_text("utf-8")
    read = [evaluate_document.read_json(json.dumps(json.loads(line)["case"]).encode()) for line in _LINES]
    shown = {name for each in read for name in evaluate.show(each, evaluate.evaluate(each))}
    assert shown == {"name", "desiredReplicas", "rescaled", "status", "events", "remarks", "error", "trace"}
    fields = [
        *EvaluateDocument.__struct_encode_fields__,
        *ControllerOptions.__struct_encode_fields__,
        *sorted(shown),
    ]

    assert [
        name
        for name in fields
        if f"`{name}" not in text and f".{name}`" not in text and f"{name}." not in text
    ] == []
