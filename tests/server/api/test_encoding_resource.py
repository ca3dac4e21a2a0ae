"""Bodies of resource metrics, byte for byte."""

import json
from typing import Any, Literal

import msgspec
import pytest

from adapter.model.field_selectors import EVERYTHING as EVERY_FIELD
from adapter.model.label_selectors import EVERYTHING
from adapter.model.metrics import ContainerUsage, ObjectUsage, ResourceAnswer, ResourceQuestion, Usage
from adapter.server.api import encoding
from adapter.server.api.encoding import TableOptions

TIME = 1_743_508_800.0  # 2025-04-01T12:00:00Z
MADE = TIME + 5.9
WEB = ObjectUsage(
    "shop",
    "web-1",
    {"tier": "front", "app": "web"},
    TIME + 0.9,
    Usage(1350, 104_857_600_000 + 1_500_500),
    (ContainerUsage("main", Usage(1100, 104_857_600_000)), ContainerUsage("side", Usage(250, 1_500_500))),
)
BARE = ObjectUsage("shop", "web-2", {}, TIME, Usage(0, 0), (ContainerUsage("main", Usage(0, 0)),))
NODE = ObjectUsage("", "n1", {"zone": "a<b"}, TIME, Usage(1500, 8_589_934_592_000))


def text(
    kind: Literal["pods", "nodes"],
    *items: ObjectUsage,
    name: str | None = None,
    table: TableOptions | None = None,
) -> str:
    question = ResourceQuestion(kind, None, name, EVERYTHING, EVERY_FIELD)
    answer = ResourceAnswer(items, 90.5, MADE, 0.0)
    return b"".join(encoding.encode_resource("v1beta1", question, answer, table)).decode()


WEB_METADATA = (
    '"metadata":{"name":"web-1","namespace":"shop","creationTimestamp":"2025-04-01T12:00:05Z",'
    '"labels":{"app":"web","tier":"front"}}'
)
WEB_BODY = (
    f'{WEB_METADATA},"timestamp":"2025-04-01T12:00:00Z","window":"1m30.5s","containers":['
    '{"name":"main","usage":{"cpu":"1100m","memory":"100Mi"}},'
    '{"name":"side","usage":{"cpu":"250m","memory":"1500500m"}}]}'
)
NODE_BODY = (
    '"metadata":{"name":"n1","creationTimestamp":"2025-04-01T12:00:05Z","labels":{"zone":"a\\u003cb"}},'
    '"timestamp":"2025-04-01T12:00:00Z","window":"1m30.5s","usage":{"cpu":"1500m","memory":"8Gi"}}'
)


def test_pods() -> None:
    assert text("pods", WEB, BARE) == (
        '{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[{'
        f"{WEB_BODY},"
        '{"metadata":{"name":"web-2","namespace":"shop","creationTimestamp":"2025-04-01T12:00:05Z"},'
        '"timestamp":"2025-04-01T12:00:00Z","window":"1m30.5s","containers":'
        '[{"name":"main","usage":{"cpu":"0","memory":"0"}}]}]}\n'
    )


def test_a_pod() -> None:
    assert text("pods", WEB, name="web-1") == (
        f'{{"kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1beta1",{WEB_BODY}\n'
    )


def test_nodes() -> None:
    head = '{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":['
    assert text("nodes", NODE) == f"{head}{{{NODE_BODY}]}}\n"


def test_a_node() -> None:
    assert text("nodes", NODE, name="n1") == (
        f'{{"kind":"NodeMetrics","apiVersion":"metrics.k8s.io/v1beta1",{NODE_BODY}\n'
    )


@pytest.mark.parametrize("kind", ["pods", "nodes"])
def test_an_empty_list(kind: Literal["pods", "nodes"]) -> None:
    assert json.loads(text(kind))["items"] == []
    table = json.loads(text(kind, table=TableOptions("v1")))
    assert (table["rows"], len(table["columnDefinitions"])) == ([], 4)


def read_table(*items: ObjectUsage, include: str = "", version: str = "v1", name: str | None = None) -> Any:
    return json.loads(text("pods", *items, name=name, table=TableOptions(version, include)))


def test_a_table() -> None:
    table = read_table(WEB, BARE)
    assert (table["kind"], table["apiVersion"], table["metadata"]) == ("Table", "meta.k8s.io/v1", {})
    assert table["columnDefinitions"] == [
        {"name": name, "type": "string", "format": form, "description": about, "priority": 0}
        for name, form, about in (
            ("Name", "name", "Name of the resource"),
            ("cpu", "quantity", ""),
            ("memory", "quantity", ""),
            ("Window", "duration", ""),
        )
    ]
    assert [row["cells"] for row in table["rows"]] == [
        ["web-1", "1350m", "104859100500m", "1m30.5s"],
        ["web-2", "0", "0", "1m30.5s"],
    ], "the sums of containers"
    shown = table["rows"][0]["object"]
    assert (shown["kind"], shown["apiVersion"], shown["metadata"]["name"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        "web-1",
    )


@pytest.mark.parametrize("name", [None, "web-1"])
def test_how_much_of_an_object_a_table_shows(name: str | None) -> None:
    assert read_table(WEB, include="None", name=name)["rows"][0]["object"] is None
    whole = read_table(WEB, include="Object", name=name)["rows"][0]["object"]
    assert whole == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        **json.loads(f"{{{WEB_BODY}"),
    }
    partial = read_table(WEB, include="Metadata", version="v1beta1", name=name)
    assert partial["rows"][0]["object"]["apiVersion"] == partial["apiVersion"] == "meta.k8s.io/v1beta1"


def test_a_table_of_nodes() -> None:
    [row] = json.loads(text("nodes", NODE, table=TableOptions("v1")))["rows"]
    assert row["cells"] == ["n1", "1500m", "8Gi", "1m30.5s"]


def test_a_long_list_comes_in_pieces() -> None:
    items = tuple(msgspec.structs.replace(BARE, name=f"web-{number}") for number in range(1_250))
    question = ResourceQuestion("pods", None, None, EVERYTHING, EVERY_FIELD)
    pieces = list(encoding.encode_resource("v1beta1", question, ResourceAnswer(items, 0.0, MADE, 0.0), None))
    assert max(map(len, pieces)) < 100 * 300
    assert [item["metadata"]["name"] for item in json.loads(b"".join(pieces))["items"]] == [
        item.name for item in items
    ]
