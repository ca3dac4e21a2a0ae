"""What prometheus-adapter answers, row by row, and where we differ on purpose."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.errors import PrometheusError, StatusError
from adapter.model.metrics import CustomQuestion, ExternalQuestion, ObjectReference
from adapter.server.api import encoding
from tests.support.world import Outcome, RulesWorld, parse_value, question, scalar, series, vector, world

EVERY: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "worked-examples.yaml").read_text()
)
ROWS = [row for row in EVERY if row["api"] != "resource"]  # those of resource metrics are in test_resource
NOON = 1_743_508_800.0  # 2025-04-01T12:00:00Z

# What we answer instead: an invalid value is absent, never zero and never an overflow.
OURS: dict[int, dict[str, Any]] = {
    20: {"status": 404, "message": "the server could not find the metric queue_len for pods a"},
    21: {"status": 404, "message": "the server could not find the metric queue_len for pods a"},
    36: {"status": 500, "message": "Internal error occurred: unable to fetch metrics"},
}


def _identify(row: dict[str, Any]) -> str:
    ours = "OUR-difference-" if row["id"] in OURS else ""
    return f"{row['id']}-{ours}{row['about']}"


def _outcome(result: Any) -> Outcome:
    match result:
        case "error":
            return PrometheusError("query", "bad_data: it is made up")
        case {"scalar": text}:
            return scalar(parse_value(text), NOON)
        case list():
            return vector(*((labels, parse_value(text)) for labels, text in result), time=NOON)
    raise AssertionError(result)


def _provider(row: dict[str, Any]) -> AbstractAsyncContextManager[RulesWorld]:
    section = {"custom": "rules", "external": "externalRules"}[row["api"]]
    return world(
        yaml.safe_dump({section: [row["rule"]]}),
        answer=lambda _: _outcome(row["result"]),
        lists={row["rule"]["seriesQuery"]: series(*row["series"])},
        names=row.get("listed", ()),
    )


async def _ask(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row's request is answered with, in the row's own words."""
    async with _provider(row) as here:
        asked = question(row["api"], row["request"])
        got: dict[str, Any] = {"status": 200}
        try:
            if isinstance(asked, CustomQuestion):
                body = b"".join(encoding.encode_custom("v1beta1", asked, await here.provider.custom(asked)))
                items = json.loads(body)["items"]
                got["items"] = [[item["describedObject"]["name"], item["value"]] for item in items]
                if items:
                    got["selector"] = items[0]["selector"]
            else:
                assert isinstance(asked, ExternalQuestion)
                body = b"".join(encoding.encode_external("v1beta1", await here.provider.external(asked)))
                got["external_items"] = [
                    [item["metricLabels"], item["value"]] for item in json.loads(body)["items"]
                ]
        except StatusError as error:
            got = {"status": error.code, "message": error.message}
        got["promql"] = here.querier.asked
        got["lists"] = len(here.names.asked)
        return got


def _expected(row: dict[str, Any]) -> dict[str, Any]:
    answer = ("status", "message", "items", "external_items")
    expected = (
        {key: row[key] for key in answer if key in row} if row["id"] not in OURS else dict(OURS[row["id"]])
    )
    if expected.get("items"):
        expected["selector"] = row.get("selector")
    expected["promql"] = [] if row["promql"] is None else [row["promql"]]
    expected["lists"] = int("listed" in row)
    return expected


@pytest.mark.parametrize("row", ROWS, ids=_identify)
async def test_answer(row: dict[str, Any]) -> None:
    assert await _ask(row) == _expected(row)


def test_every_row_is_there() -> None:
    assert [row["id"] for row in EVERY] == list(range(1, 44))


@pytest.mark.parametrize(
    ("number", "described"),
    [
        pytest.param(6, ObjectReference("Service", "somens", "somesvc", "/v1"), id="a core kind has /v1"),
        pytest.param(8, ObjectReference("Node", "", "somenode", "/v1"), id="at the root, no namespace"),
        pytest.param(10, ObjectReference("Namespace", "", "somens", "/v1"), id="a namespace is at the root"),
        pytest.param(27, ObjectReference("Deployment", "shop", "cart", "apps/v1"), id="group and version"),
    ],
)
async def test_how_an_object_is_described(number: int, described: ObjectReference) -> None:
    row = next(row for row in ROWS if row["id"] == number)
    async with _provider(row) as here:
        asked = question(row["api"], row["request"])
        assert isinstance(asked, CustomQuestion)
        assert {item.described for item in (await here.provider.custom(asked)).items} == {described}
