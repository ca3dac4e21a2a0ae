"""What Kubernetes' own controller did with 700 inputs, compared as the format says: see `data/hpa-evaluate`.

Texts that name one pod of several without a request depend on the order of a map there and are compared
without it.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fastpath_tools import evaluate, evaluate_document
from tests.support.answers import answers

_FOLDER = Path(__file__).parents[2] / "data" / "hpa-evaluate"
_ANY_POD = re.compile(r"(missing (?:pod-level )?request for \S+|container \S+ not found) in .*")


def _cases() -> list[Any]:
    lines = [
        line for file in sorted(_FOLDER.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()
    ]
    return [pytest.param(case := json.loads(line), id=case["case"]["name"]) for line in lines]


def _text(message: str) -> str:
    return _ANY_POD.sub(r"\1", message)


def _compared(given: dict[str, Any]) -> dict[str, Any]:
    status = given["status"]
    if status is not None:
        conditions = [
            {**condition, "message": _text(condition["message"])} for condition in status["conditions"]
        ]
        status = {**status, "currentMetrics": status.get("currentMetrics") or [], "conditions": conditions}
    return {
        "desiredReplicas": given["desiredReplicas"],
        "rescaled": given["rescaled"],
        "status": status,
        "events": [{**event, "message": _text(event["message"])} for event in given.get("events") or ()],
        "error": _text(given.get("error") or ""),
    }


@pytest.mark.parametrize("case", _cases())
def test_decides_as_kubernetes(case: dict[str, Any]) -> None:
    read = evaluate_document.read_json(json.dumps(case["case"]).encode())

    shown = json.loads(evaluate.to_json(evaluate.show(read, evaluate.evaluate(read))))

    assert shown["name"] == case["case"]["name"]
    assert _compared(shown) == _compared(case["expected"])
    assert all(step["text"] for step in shown["trace"])


_NAMED = {case.id: case.values[0] for case in _cases()}


@pytest.mark.parametrize(
    ("name", "words"), [(row.id, *row.values) for row in answers("decide/trace", "of recorded cases")]
)
def test_says_what_it_does(name: str, words: list[str]) -> None:
    """Among these cases each sentence of a trace is at least once."""
    read = evaluate_document.read_json(json.dumps(_NAMED[name]["case"]).encode())

    assert [step.text() for step in evaluate.evaluate(read).trace] == words


def test_has_all_cases() -> None:
    assert len(_NAMED) == 700
