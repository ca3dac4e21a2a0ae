"""Names that others chose do not act on the terminal of the person who runs a tool."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icalendar
import msgspec
import pytest
import yaml

from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.explain import debug
from adapter.cli import command_line, main
from adapter.model.autoscaling.hpa import decode_scalar
from fastpath_tools.doctor import command as doctor
from fastpath_tools.doctor import diagnosis
from fastpath_tools.doctor.command import Found
from fastpath_tools.doctor.hops import Facts
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.live.facts import MetricFacts, Period, Serving, Unread
from tests.support.controller import Bench, fpa, shown_document
from tests.support.scaling import external_metric
from tests.support.simulation import STEP
from tests.tools.forecast.cards import candidate, card
from tests.tools.hostile_text import HOSTILE, acting


def check(printed: Any, *, lines: str = "\n") -> str:
    """Check standard output and error, and return both."""
    whole: str = printed.out + printed.err
    assert "FORGED" in whole
    assert not acting(whole.replace(lines, "\n"))
    assert not [line for line in whole.splitlines() if line.startswith("FORGED")]
    return whole


def write(path: Path, document: object) -> str:
    """Write a document as JSON; YAML readers take no escaped pair of surrogates."""
    text = json.dumps(document)
    for sign in HOSTILE:
        if sign > "\uffff":
            text = text.replace(json.dumps(sign)[1:-1], sign)
    path.write_text(text)
    return str(path)


def autoscaler(kind: str = "HorizontalPodAutoscaler", name: str = "web") -> dict[str, Any]:
    native = kind == "HorizontalPodAutoscaler"
    return {
        "apiVersion": "autoscaling/v2" if native else "fastpath.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "annotations": {"note": HOSTILE}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": HOSTILE},
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    },
                }
            ],
        },
    }


def schedule(**changes: Any) -> dict[str, Any]:
    window = {"name": HOSTILE, "from": "08:00", "to": "18:00", "minReplicas": 3} | changes
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathSchedule",
        "metadata": {"name": HOSTILE, "namespace": "shop"},
        "spec": {
            "timeZone": "UTC",
            "targets": [{"kind": "FastPathAutoscaler", "name": "web"}],
            "windows": [window],
        },
    }


def evaluated() -> dict[str, Any]:
    given = autoscaler()
    at = "2026-11-20T11:00:00Z"
    return {
        "name": HOSTILE,
        "now": "2026-11-20T12:00:00Z",
        "hpa": {"metadata": given["metadata"], "spec": given["spec"], "status": {"lastScaleTime": at}},
        "scale": {"spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "app=web"}},
        "pods": [{"metadata": {"name": HOSTILE, "labels": {"app": "web"}}, "status": {"startTime": at}}],
        "metrics": {"external": []},
    }


RULES = f"""
rules:
- seriesQuery: {json.dumps(HOSTILE)}
  metricsQuery: {json.dumps("sum(x{a='" + HOSTILE + "'}) by (<<.GroupBy>>)")}
  name: {{as: {json.dumps(HOSTILE)}}}
  resources: {{overrides: {{pod: {{resource: pod}}, ns: {{resource: {json.dumps(HOSTILE)}}}}}}}
""".replace(json.dumps("\U000e0041")[1:-1], "\U000e0041").replace(
    json.dumps("\U0001d173")[1:-1], "\U0001d173"
)

FILES: dict[str, tuple[list[str], Any]] = {
    "convert": (["convert"], autoscaler()),
    "convert a faulty name": (["convert"], autoscaler(name=HOSTILE)),
    "convert back": (["convert", "--back"], autoscaler("FastPathAutoscaler")),
    "convert another kind": (["convert"], {"kind": "List", "items": [autoscaler(), {"kind": HOSTILE}]}),
    "schedule": (["schedule"], schedule()),
    "schedule with a fault": (["schedule"], schedule(**{"from": HOSTILE})),
    "schedule with an unknown key": (["schedule"], schedule(**{HOSTILE: 1})),
    "schedule of another kind": (["schedule"], {"kind": HOSTILE}),
    "schedule json": (["schedule", "-o", "json"], schedule()),
    "check": (["check"], autoscaler(name=HOSTILE)),
    "check schedule": (["check"], schedule(cron=HOSTILE)),
    "check json": (["check", "-o", "json"], autoscaler(name=HOSTILE)),
    "boost a faulty name": (["boost"], autoscaler(name=HOSTILE)),
    "evaluate": (["evaluate"], evaluated()),
    "evaluate explain": (["evaluate", "--explain"], evaluated()),
    "evaluate yaml": (["evaluate", "-o", "yaml"], evaluated()),
    "evaluate jsonl": (["evaluate", "--jsonl"], evaluated()),
    "evaluate a fault": (["evaluate"], evaluated() | {HOSTILE: 1}),
    "no such file": (["check", HOSTILE.replace("\x00", "")], {}),
    "no such verb": ([HOSTILE], {}),
    "no such flag": (["check", f"--{HOSTILE}"], {}),
}


@pytest.mark.parametrize(("arguments", "document"), FILES.values(), ids=FILES)
def test_files(
    arguments: list[str], document: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    main.main([*arguments, write(tmp_path / "given.json", document)])
    check(capfd.readouterr())


def test_rules(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    for arguments in ([], ["-o", "json"]):
        main.main(["check", *arguments, str(tmp_path / "rules.yaml")])
        check(capfd.readouterr())


def test_values_of_outputs_that_programs_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main.main(["convert", write(tmp_path / "hpa.json", autoscaler())])
    assert yaml.safe_load(capfd.readouterr().out)["metadata"]["annotations"]["note"] == HOSTILE
    main.main(["evaluate", write(tmp_path / "case.json", evaluated())])
    assert json.loads(capfd.readouterr().out)["name"] == HOSTILE
    main.main(["schedule", "-o", "json", write(tmp_path / "schedule.json", schedule())])
    assert json.loads(capfd.readouterr().out)["levels"][0]["windows"] == [HOSTILE]


def test_a_calendar_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main.main(["schedule", "-o", "ics", write(tmp_path / "schedule.json", schedule())])
    text = check(capfd.readouterr(), lines="\r\n")
    events: Any = icalendar.Calendar.from_ical(text).walk("VEVENT")
    assert {str(each["DESCRIPTION"])[:11] for each in events} == {"web\\nFORGED"}


@pytest.mark.parametrize("output", ["text", "markdown", "json", "svg"])
@pytest.mark.parametrize("arguments", [[], ["--suggest"]])
def test_simulations(
    output: str, arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if arguments and output == "svg":
        pytest.skip("suggestions have no picture")
    (tmp_path / "load.csv").write_text(STEP)
    given = ["--autoscaler", write(tmp_path / "hpa.json", autoscaler())]
    status = main.main(
        ["simulate", *given, "--load", f"{tmp_path}/load.csv", "--pod-start=20s", "-o", output, *arguments]
    )
    printed = capfd.readouterr()
    assert not acting(printed.out + printed.err)
    assert status == 0, printed.err
    if output != "json":  # the figures have no names
        check(printed)


def _poisoned(value: Any) -> Any:
    """Return a document with hostile text behind each text, and as a key."""
    if isinstance(value, dict):
        return {name: _poisoned(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_poisoned(below) for below in value]
    return value + HOSTILE if isinstance(value, str) else value


async def _shown() -> bytes:
    bench = Bench()
    bench.sources.readings["queue"] = ExternalReading([7000])
    bench.put(fpa([external_metric(averageValue="1")]), replicas=4)
    await bench.step()
    document = shown_document(bench.controller)
    bench.close()
    return debug.encode(_poisoned(document))


async def test_the_debug_page() -> None:
    text = (await _shown()).decode()
    assert not acting(text)
    assert json.loads(text)["name"] == f"web{HOSTILE}"


@pytest.mark.parametrize("output", ["text", "json"])
async def test_explanations(
    output: str, serve: Callable[[Any], None], capfd: pytest.CaptureFixture[str]
) -> None:
    serve(json.loads(await _shown()))
    await asyncio.to_thread(main.main, ["explain", "shop/web", "--server=http://127.0.0.1:1", "-o", output])
    check(capfd.readouterr())


@pytest.mark.parametrize("output", ["text", "json", "svg"])
def test_forecasts(output: str, serve: Callable[[Any], None], capfd: pytest.CaptureFixture[str]) -> None:
    made = card(candidate(HOSTILE), candidate("b", refused=HOSTILE), chosen=HOSTILE)
    serve({"forecast": msgspec.to_builtins({"card": made, "floor": 1, "withheld": HOSTILE})})
    assert main.main(["forecast", "shop/web", "-o", output]) == 0
    check(capfd.readouterr())


@pytest.mark.parametrize("target", [[], ["shop/web"]])
@pytest.mark.parametrize("output", ["text", "json"])
def test_diagnoses(
    target: list[str], output: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hpa = msgspec.convert(autoscaler() | {"status": {}}, HPA, dec_hook=decode_scalar)
    spec = (hpa.spec.metrics or ())[0]
    metric = MetricFacts(
        HOSTILE, spec, Serving("external.metrics.k8s.io", HOSTILE, ours=False), Unread(HOSTILE)
    )
    found = diagnosis.examine(Facts(hpa, Unread(HOSTILE), (metric,), Period(15.0, HOSTILE), 0.0, 0))

    async def run(_: object) -> Found:
        return Found((found,), (), (HOSTILE,))

    monkeypatch.setattr(doctor, "_run", run)
    main.main(["doctor", "-o", output, *target])
    check(capfd.readouterr())


def test_a_terminal_gets_a_file_with_escapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command_line.show_file("a: \u202e\n")
    assert capsys.readouterr().out == "a: \u202e\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    command_line.show_file("a: \u202e\n")
    assert capsys.readouterr().out == "a: \\u202e\n"
