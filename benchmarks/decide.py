"""The speed of decisions: `python -m benchmarks.decide`, in syncs for each second of one core.

The unit is CPU time, so that a busy machine gives valid figures too. `evaluate` reads and writes the
conformance cases as text, as `fastpath evaluate --jsonl` does. `decide` calls the decision alone, with ten
pods and decoded inputs, one second of time apart, as a scaler at 1 Hz does. It carries the history along.
"""

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import ExternalReading, Observation, PodsReading, Reading, Settings
from adapter.autoscaler.decide.prepared_spec import PreparedSpec, prepare
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, decode_scalar, with_defaults
from adapter.model.pods import Container, PodFacts, ResourceRequirements
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND, read_instant
from benchmarks import common
from benchmarks.common import Goal, Report
from fastpath_tools import evaluate, evaluate_document

_CASES = Path(__file__).parent.parent / "tests" / "data" / "hpa-evaluate"
_NOW = read_instant("2026-11-20T12:00:00Z")
_PODS = 10

_UTILIZATION: dict[str, object] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
}
_AVERAGE: dict[str, object] = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "20"},
    },
}
_EXTERNAL: dict[str, object] = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}},
}

_CASES_OF_DECIDE: dict[str, list[dict[str, object]]] = {
    "cpu": [_UTILIZATION],
    "pods_metric": [_AVERAGE],
    "three_metrics": [_UTILIZATION, _AVERAGE, _EXTERNAL],
}


def main() -> None:
    sizes = common.parse_sizes("How fast decisions are.", repeat=20, calls=20_000, runs=5)
    os.sched_setaffinity(0, {common.SERVER_CORE})
    goals = {
        "evaluate_syncs_per_second": Goal(
            "recorded decisions through `fastpath evaluate`, input and output text included, on one core",
            5_000,
            "/s",
            at_least=True,
        ),
        "decide_cpu_calls_per_second": Goal(
            "decisions for ten pods with a cpu target, without decoding the inputs",
            20_000,
            "/s",
            at_least=True,
        ),
        "decide_pods_metric_calls_per_second": Goal(
            "decisions for ten pods with a Pods metric, without decoding the inputs",
            20_000,
            "/s",
            at_least=True,
        ),
    }
    settings = {"pods": _PODS, "repeat": sizes.repeat, "calls": sizes.calls, "runs": sizes.runs}
    report = Report("decide", settings, goals)
    runs = range(int(sizes.runs))
    lines = _lines() * int(sizes.repeat)
    figure = "evaluate_syncs_per_second"
    report.add(**common.median_of([{figure: _rate(partial(_evaluate, lines), len(lines))} for _ in runs]))
    for name, metrics in _CASES_OF_DECIDE.items():
        autoscaler, observation = _prepare(metrics)
        calls = int(sizes.calls)
        work = partial(_decide, autoscaler, observation, calls)
        figure = f"decide_{name}_calls_per_second"
        report.add(**common.median_of([{figure: _rate(work, calls)} for _ in runs]))
    report.show()


def _lines() -> list[bytes]:
    """Return the inputs of all cases as lines."""
    files = sorted(_CASES.glob("*.jsonl"))
    return [
        msgspec.json.encode(json.loads(line)["case"])
        for file in files
        for line in file.read_bytes().splitlines()
    ]


def _rate(work: Callable[[], None], count: int) -> float:
    start = time.process_time()
    work()
    return count / (time.process_time() - start)


def _evaluate(lines: list[bytes]) -> None:
    for line in lines:
        read_line = evaluate_document.read_json(line)
        evaluate.to_json(evaluate.show(read_line, evaluate.evaluate(read_line)))


def _prepare(metrics: list[dict[str, object]]) -> tuple[PreparedSpec, Observation]:
    """Return an autoscaler with behavior, and its inputs: ten ready pods a little above their target."""
    hpa = msgspec.convert(
        {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2,
                "maxReplicas": 100,
                "metrics": metrics,
                "behavior": {},
            },
        },
        HorizontalPodAutoscaler,
        dec_hook=decode_scalar,
    )
    hpa = msgspec.structs.replace(hpa, spec=with_defaults(hpa.spec))
    containers = (Container("app", ResourceRequirements({"cpu": read("500m")})),)
    started = _NOW - 3600 * SECOND
    pods = [
        PodFacts(
            f"web-{number}",
            started=started,
            ready="True",
            ready_since=started + SECOND,
            containers=containers,
        )
        for number in range(_PODS)
    ]
    names = [pod.name for pod in pods]
    readings: dict[str, Reading] = {
        "Resource": PodsReading(dict.fromkeys(names, 310), dict.fromkeys(names, (_NOW, 15 * SECOND))),
        "Pods": PodsReading(dict.fromkeys(names, 20_400)),
        "External": ExternalReading([310_000]),
    }
    observed = [readings[str(metric["type"])] for metric in metrics]
    return prepare(hpa, Settings()), Observation(_PODS, _PODS, "app=web", pods, observed)


def _decide(
    autoscaler: PreparedSpec,
    observation: Observation,
    calls: int,
) -> None:
    history = History()
    status = observation.status
    for number in range(calls):
        seen = msgspec.structs.replace(observation, status=status)
        decision = decide(autoscaler, seen, history, _NOW + number * SECOND)
        history, status = decision.history, decision.status


if __name__ == "__main__":
    main()
