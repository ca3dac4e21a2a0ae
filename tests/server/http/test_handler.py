"""A request's whole path over real TLS: answers, failures, negotiation, caching, limits, self-metrics."""

import asyncio
import gzip
import json
import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapter import errors
from adapter.model.identity import User
from adapter.model.metrics import CustomMetricInfo, ExternalQuestion, ExternalValue, GroupResource
from adapter.server.api import encoding, routing
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, VERSIONS
from adapter.server.http import handler
from adapter.server.http.budgets import Charge
from adapter.server.http.handler import HandlerLimits
from adapter.server.http.negotiation import Representation
from adapter.telemetry.metrics import CONTENT_TYPE
from tests.support.serving import Answer, Served, ServerFactory, pod_value
from tests.support.waiting import other_work, until

CUSTOM = f"/apis/{CUSTOM_GROUP}/v1beta2"
EXTERNAL = f"/apis/{EXTERNAL_GROUP}/v1beta1"
PODS = f"{CUSTOM}/namespaces/default/pods/%2A/http_requests"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
BOB = {"Authorization": "Bearer bob"}
TURN = 16_384
"""Bytes of an answer that may be made without a turn for other work."""


def status(answer: Answer) -> tuple[int, str, str]:
    """Return code, reason and message of a Status, which must be whole."""
    content = answer.json
    assert (content["kind"], content["apiVersion"], content["status"]) == ("Status", "v1", "Failure")
    assert content["code"] == answer.status
    assert answer.headers["content-type"] == "application/json"
    return answer.status, content.get("reason", ""), content["message"]


async def test_only_an_unexpected_error_is_in_the_log_with_its_traceback(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (errors.NotSyncedError("pods"), RuntimeError("password is hunter2")):
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        served.provider.error = error
        assert "hunter2" not in (await served.get(PODS)).text
    assert "hunter2" in caplog.text


async def test_audit_id(served: Served) -> None:
    wanted = "0f9d4d4e-64b4-4b9c-9c93-2f0a7a6c4f2e"
    assert (await served.get(PODS, headers={"Audit-Id": wanted})).headers["audit-id"] == wanted
    made = (await served.get(PODS, headers={"Audit-Id": "<b> x"})).headers["audit-id"]
    assert str(uuid.UUID(made)) == made
    assert made != (await served.get(PODS)).headers["audit-id"]


# --- what is kept


def routes_kept(served: Served) -> float | None:
    return served.monitoring.registry.get_sample_value("fastpath_cache_entries", {"cache": "routes"})


async def test_memory_for_routes_is_bounded(served: Served) -> None:
    """A selector takes hundreds of times the room of its text."""
    served.reviews.tokens["bob"] = User("bob")
    selector = f"a+in+({','.join(['b'] * 1900)})"
    weight = routing.weigh(f"{PODS}?labelSelector={selector}")
    assert weight > 100 * len(selector)
    fit = handler.ROUTES_WEIGHT // weight
    connection = await served.connect()
    for number in range(3 + fit):
        target = f"{PODS}?labelSelector=n{number:03},{selector}"
        before = min(number, fit)
        for kept in (before, min(number + 1, fit)):  # a target may never be repeated
            assert (await connection.request(target, headers=BOB)).status == 200
            assert routes_kept(served) == kept
    evicted = {"cache": "routes"}
    assert served.monitoring.registry.get_sample_value("fastpath_cache_evictions_total", evicted) == 3


# --- other work while a large answer is made


@pytest.mark.parametrize("size", [1, 100, 5_000, 16_383, 40_000], ids=str)
async def test_other_work_has_a_turn_after_each_part_of_a_body(size: int) -> None:
    """Whatever the size of its pieces: a limit of bytes without a turn for other work."""
    bytes_by_turn: Counter[int] = Counter()
    async with other_work() as turns:

        def pieces() -> Iterator[bytes]:
            for _ in range(400_000 // size):
                bytes_by_turn[turns.count] += size
                yield b"x" * size

        assert len(await encoding.join(pieces())) == bytes_by_turn.total()
    assert max(bytes_by_turn.values()) < TURN + size


async def test_other_work_has_turns_while_many_series_are_encoded(served: Served) -> None:
    """As many as the bytes of the answer ask for, and as many as there are distinct times to observe."""
    labels = {"queue": "a-queue-of-some-length"}
    served.provider.external_items = tuple(
        ExternalValue("m", labels, 1, float(number)) for number in range(20_000)
    )
    route = routing.find_route(f"{EXTERNAL}/namespaces/default/m", VERSIONS)
    question = route.parse_query()
    assert isinstance(question, ExternalQuestion)
    connection: Any = SimpleNamespace(is_certified=True)
    charge = Charge(served.handler._budget, connection)
    plain = Representation(pretty=False, compressed=False)
    async with other_work() as turns:
        response = await served.handler._metrics._make("/", route, question, plain, charge)
    assert turns.count >= len(response.body) // (2 * TURN) + 20_000 // 1000


async def test_other_work_has_turns_while_many_series_are_exposed(served: Served) -> None:
    """Many autoscalers have thousands of series, which take tens of milliseconds to write."""
    for number in range(3_000):
        served.monitoring.desired_replicas.put(("FastPathAutoscaler", "shop", f"web-{number}"), number)
    async with other_work() as turns:
        exposed = await encoding.join(served.monitoring.exposition_pieces())
    assert turns.count >= len(exposed) // (2 * TURN)
    assert exposed.count(b"fastpath_autoscaler_desired_replicas{") == 3_000
    answer = await served.get("/metrics")
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert answer.text.count("fastpath_autoscaler_desired_replicas{") == 3_000


# --- compression


@pytest.mark.parametrize(("pods", "is_compressed"), [(100, False), (1200, True)], ids=["small", "large"])
async def test_large_bodies_are_compressed_for_those_who_accept_it(
    served: Served,
    pods: int,
    is_compressed: bool,  # noqa: FBT001 - a column of a table
) -> None:
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    served.provider.items = tuple(pod_value(f"web-{number}", number) for number in range(pods))
    plain = await served.get(PODS)
    assert "content-encoding" not in plain.headers
    packed = await served.get(PODS, headers={"Accept-Encoding": "gzip"})
    assert packed.headers.get("content-encoding") == ("gzip" if is_compressed else None)
    body = gzip.decompress(packed.body) if is_compressed else packed.body
    assert body == plain.body
    assert ("vary" in packed.headers) is is_compressed
    assert (await served.get(PODS, headers={"Accept-Encoding": "gzip"})).body == packed.body


# --- limits


def in_flight(served: Served) -> float | None:
    labels = {"request_kind": "readOnly"}
    return served.monitoring.registry.get_sample_value("apiserver_current_inflight_requests", labels)


async def test_a_question_counts_until_it_is_answered_though_its_caller_left(serve: ServerFactory) -> None:
    """Callers without patience do not pile up questions, and the answer is there for the next."""
    served = await serve(limits=HandlerLimits(in_flight=2))
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    release = served.provider.hold()
    for number in range(2):
        while len(served.provider.questions) == number:  # its time may be over before it asks
            assert (await served.get(f"{PODS}?timeout=10ms&labelSelector=n%3D{number}")).status == 504
    for query in ("?timeout=10s&labelSelector=n%3D2", ""):
        assert (await served.get(f"{PODS}{query}")).status == 429
    assert in_flight(served) == 2
    assert 'fastpath_requests_refused_total{limit="requests"} 2.0' in served.monitoring.exposition()
    assert len(served.provider.questions) == 2
    release.set()
    await until(lambda: in_flight(served) == 0)
    assert (await served.get(f"{PODS}?timeout=10ms&labelSelector=n%3D1")).status == 200
    assert len(served.provider.questions) == 2
    assert (await served.get(PODS)).status == 200


async def test_a_failure_without_a_waiting_request_is_not_logged(serve: ServerFactory) -> None:
    served = await serve()
    release, failed = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        await release.wait()
        failed.set()
        raise errors.PrometheusError("timeout", "gave up")

    served.provider.before = fail
    assert (await served.get(f"{PODS}?timeout=10ms")).status == 504
    release.set()
    await failed.wait()
    served.provider.before = None
    assert (await served.get(PODS)).status == 200
    assert in_flight(served) == 0


# --- documents


async def test_discovery_manager(served: Served) -> None:
    served.provider.metrics = [CustomMetricInfo(GroupResource("", "pods"), namespaced=True, metric="m")]
    first = await served.get("/apis", headers={"Accept": V2})
    assert first.status == 200
    assert first.headers["content-type"] == V2
    assert first.headers["vary"] == "Accept"
    etag = first.headers["etag"]
    again = await served.get("/apis", headers={"Accept": V2, "If-None-Match": etag})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    served.provider.metrics = []
    served.provider.generation += 1
    changed = await served.get("/apis", headers={"Accept": V2, "If-None-Match": etag})
    assert changed.status == 200
    assert changed.headers["etag"] != etag


async def test_a_document_older_than_the_registry_is_not_kept(served: Served) -> None:
    def reload() -> None:
        served.provider.generation += 1
        served.provider.external_names = ["new"]

    served.provider.external_names, served.provider.while_listing = ["old"], reload
    for name in ("old", "new"):
        assert (await served.get(EXTERNAL)).json["resources"][0]["name"] == name


async def test_a_large_document_is_compressed(served: Served) -> None:
    pods = GroupResource("", "pods")
    served.provider.metrics = [
        CustomMetricInfo(pods, namespaced=True, metric=f"metric_{n}") for n in range(2000)
    ]
    answer = await served.get(CUSTOM, headers={"Accept-Encoding": "gzip"})
    assert len(json.loads(gzip.decompress(answer.body))["resources"]) == 2000


# --- health and self-metrics


# --- connections


async def test_a_group_served_later(serve: ServerFactory) -> None:
    served = await serve(groups=[CUSTOM_GROUP])
    target = f"{EXTERNAL}/namespaces/ns/m"
    for accept in ("application/json", V2):
        assert EXTERNAL_GROUP not in (await served.get("/apis", headers={"Accept": accept})).text
    assert (await served.get(target)).status == 404
    served.documents.serve([EXTERNAL_GROUP])
    assert (await served.get(target)).status == 200
    for accept in ("application/json", V2):
        answer = await served.get("/apis", headers={"Accept": accept})
        assert EXTERNAL_GROUP in answer.text, "no new generation is needed for it"
        assert CUSTOM_GROUP in answer.text
