"""What prometheus-adapter answers, row by row, and where we differ on purpose."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.errors import PrometheusError, StatusError
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.server.api import encoding
from tests.support.world import Outcome, parse_value, question, scalar, series, vector, world

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


async def _ask(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row's request is answered with, in the row's own words."""
    section = {"custom": "rules", "external": "externalRules"}[row["api"]]
    selector = row["rule"]["seriesQuery"]
    async with world(
        yaml.safe_dump({section: [row["rule"]]}),
        answer=lambda _: _outcome(row["result"]),
        lists={selector: series(*row["series"])},
        names=row.get("listed", ()),
    ) as here:
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


BODIES = {
    "core kind has /v1": (
        6,
        "v1beta1",
        (
            '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
            'v1beta1","metadata":{},"items":[{"describedObject":'
            '{"kind":"Service","namespace":"somens","name":"somesvc",'
            '"apiVersion":"/v1"},"metricName":"ingress_hits",'
            '"timestamp":"2025-04-01T12:00:00Z","value":"1",'
            '"selector":{"matchLabels":{"param1":"value1"}}}]}\n'
        ),
    ),
    "v1beta2 has name and selector under metric": (
        6,
        "v1beta2",
        (
            '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
            'v1beta2","metadata":{},"items":[{"describedObject":'
            '{"kind":"Service","namespace":"somens","name":"somesvc",'
            '"apiVersion":"/v1"},"metric":{"name":"ingress_hits",'
            '"selector":{"matchLabels":{"param1":"value1"}}},'
            '"timestamp":"2025-04-01T12:00:00Z","value":"1"}]}\n'
        ),
    ),
    "root-scoped object has no namespace": (
        8,
        "v1beta1",
        (
            '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
            'v1beta1","metadata":{},"items":[{"describedObject":'
            '{"kind":"Node","name":"somenode","apiVersion":"/v1"},"metricName":"node_gigawatts",'
            '"timestamp":"2025-04-01T12:00:00Z","value":"1210m","selector":null}]}\n'
        ),
    ),
    "a namespace is an object at the root": (
        10,
        "v1beta1",
        (
            '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
            'v1beta1","metadata":{},"items":[{"describedObject":'
            '{"kind":"Namespace","name":"somens","apiVersion":"/v1"},"metricName":"some_usage",'
            '"timestamp":"2025-04-01T12:00:00Z","value":"10500m","selector":null}]}\n'
        ),
    ),
    "other kinds have group and version": (
        27,
        "v1beta1",
        (
            '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
            'v1beta1","metadata":{},"items":[{"describedObject":'
            '{"kind":"Deployment","namespace":"shop","name":"cart",'
            '"apiVersion":"apps/v1"},"metricName":"requests_per_workload",'
            '"timestamp":"2025-04-01T12:00:00Z","value":"33333m","selector":null}]}\n'
        ),
    ),
    "external": (
        28,
        "v1beta1",
        (
            '{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/'
            'v1beta1","metadata":{},"items":'
            '[{"metricName":"queue_consumer_lag","metricLabels":{"name":"q1"},'
            '"timestamp":"2025-04-01T12:00:00Z","value":"42"}]}\n'
        ),
    ),
}


@pytest.mark.parametrize(("number", "version", "expected"), BODIES.values(), ids=BODIES)
async def test_body(number: int, version: str, expected: str) -> None:
    row = next(row for row in ROWS if row["id"] == number)
    section = {"custom": "rules", "external": "externalRules"}[row["api"]]
    async with world(
        yaml.safe_dump({section: [row["rule"]]}),
        answer=lambda _: _outcome(row["result"]),
        lists={row["rule"]["seriesQuery"]: series(*row["series"])},
    ) as here:
        asked = question(row["api"], row["request"])
        if isinstance(asked, CustomQuestion):
            body = b"".join(encoding.encode_custom(version, asked, await here.provider.custom(asked)))
        else:
            assert isinstance(asked, ExternalQuestion)
            body = b"".join(encoding.encode_external(version, await here.provider.external(asked)))
    assert body.decode() == expected
