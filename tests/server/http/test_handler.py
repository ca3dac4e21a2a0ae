"""A request's whole path over real TLS: answers, failures, negotiation, caching, limits, self-metrics."""

import asyncio
import gzip
import itertools
import json
import logging
import re
import uuid
from collections import Counter
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapter import errors
from adapter.model.identity import AccessVerdict, User
from adapter.model.metrics import (
    CustomMetricInfo,
    ExternalQuestion,
    ExternalValue,
    GroupResource,
)
from adapter.server.api import encoding, routing
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, VERSIONS
from adapter.server.http import handler
from adapter.server.http.budgets import Charge
from adapter.server.http.handler import HandlerLimits
from adapter.server.http.negotiation import Representation
from adapter.telemetry import metrics
from tests.support.serving import Answer, Served, ServerFactory, pod_value
from tests.support.waiting import other_work, until

CUSTOM = f"/apis/{CUSTOM_GROUP}/v1beta2"
EXTERNAL = f"/apis/{EXTERNAL_GROUP}/v1beta1"
PODS = f"{CUSTOM}/namespaces/default/pods/%2A/http_requests"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
BOB = {"Authorization": "Bearer bob"}
TURN = 16_384
"""Bytes of an answer that may be made without a turn for other work."""


TIMEOUT = (504, "Timeout", "Timeout: request did not complete within the allotted timeout")


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


async def test_failures_are_not_kept(served: Served) -> None:
    served.provider.error = errors.NotFoundError("no such metric")
    assert (await served.get(PODS)).status == 404
    served.provider.error = None
    assert (await served.get(PODS)).status == 200


async def test_audit_id(served: Served) -> None:
    wanted = "0f9d4d4e-64b4-4b9c-9c93-2f0a7a6c4f2e"
    assert (await served.get(PODS, headers={"Audit-Id": wanted})).headers["audit-id"] == wanted
    made = (await served.get(PODS, headers={"Audit-Id": "<b> x"})).headers["audit-id"]
    assert str(uuid.UUID(made)) == made
    assert made != (await served.get(PODS)).headers["audit-id"]


# --- what is kept


async def asked(served: Served, target: str = PODS, headers: dict[str, str] | None = None) -> int:
    """Send a request and return how many questions have been asked so far."""
    assert (await served.get(target, headers=headers)).status == 200
    return len(served.provider.questions)


async def test_a_fresh_answer_is_kept(served: Served) -> None:
    served.provider.fresh_until = served.clock.monotonic() + 1.0
    served.provider.items = (pod_value("web-1", 1000),)
    first = await served.get(PODS)
    served.provider.items = (pod_value("web-1", 2000),)
    assert (await served.get(PODS)).body == first.body
    served.clock.advance(0.999)
    assert await asked(served) == 1
    served.clock.advance(0.001)
    assert (await served.get(PODS)).json["items"][0]["value"] == "2", "asked again once it is not fresh"
    assert len(served.provider.questions) == 2


async def test_a_new_generation_ends_what_is_kept(served: Served) -> None:
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    assert [await asked(served), await asked(served)] == [1, 1]
    served.provider.generation += 1
    assert [await asked(served), await asked(served)] == [2, 2]


async def test_an_answer_older_than_the_registry_is_not_kept(served: Served) -> None:
    served.provider.fresh_until = served.clock.monotonic() + 1000.0

    async def reload() -> None:
        served.provider.generation += 1
        served.provider.before = None

    served.provider.before = reload
    assert [await asked(served), await asked(served), await asked(served)] == [1, 2, 2]


async def test_each_form_and_query_is_kept_apart(served: Served) -> None:
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    assert await asked(served) == 1
    assert await asked(served, headers={"User-Agent": "curl/8"}) == 2
    assert await asked(served, f"{PODS}?labelSelector=a%3Db") == 3
    assert await asked(served, PODS.replace("default", "other")) == 4
    assert await asked(served, PODS.replace("v1beta2", "v1beta1")) == 5
    assert [await asked(served), await asked(served, headers={"User-Agent": "curl/9"})] == [5, 5]


async def test_memory_for_bodies_is_bounded(serve: ServerFactory) -> None:
    served = await serve(limits=HandlerLimits(kept_bytes=3 * 4500))  # three small bodies
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    targets = [PODS.replace("default", f"ns{number}") for number in range(4)]
    assert [await asked(served, target) for target in targets] == [1, 2, 3, 4]
    assert 'fastpath_cache_entries{cache="bodies"} 3.0' in served.monitoring.exposition()
    assert await asked(served, targets[3]) == 4
    assert await asked(served, targets[0]) == 5, "the one not asked for longest has gone"
    served.provider.items = tuple(pod_value(f"web-{number}", 1) for number in range(200))
    assert [await asked(served, f"{PODS}?x"), await asked(served, f"{PODS}?x")] == [6, 7], "too large to keep"


async def test_bodies_that_are_no_longer_fresh_make_room(serve: ServerFactory) -> None:
    served = await serve()
    served.provider.fresh_until = served.clock.monotonic() + 1.0
    targets = [PODS.replace("default", f"ns{number}") for number in range(6)]
    assert [await asked(served, target) for target in targets[:4]] == [1, 2, 3, 4]
    served.clock.advance(1.0)
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    for target, kept in ((targets[4], 3.0), (targets[5], 2.0), (PODS, 3.0)):
        await asked(served, target)
        assert f'fastpath_cache_entries{{cache="bodies"}} {kept}' in served.monitoring.exposition()
    assert [await asked(served, target) for target in targets[4:]] == [7, 7], "fresh ones stay"


async def test_a_target_too_long_to_keep_is_answered(served: Served) -> None:
    served.reviews.tokens["bob"] = User("bob")
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    target = f"{PODS}?labelSelector=app+in+%28{'%2C'.join(f'web-{number}' for number in range(1500))}%29"
    assert len(target) > 15_000, "also longer than a line may be by aiohttp's own default"
    assert [await asked(served, target, BOB), await asked(served, target, BOB)] == [1, 2]


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


async def test_routes_are_kept_for_callers_with_a_name_only(served: Served) -> None:
    """Anyone may send targets; those of strangers do not take the place of others."""
    served.reviews.tokens["bob"] = User("bob")
    connection = await served.connect()
    for target in 2 * (PODS, f"{PODS}?labelSelector=a", "/version", "/livez", f"{CUSTOM}/x", "/%"):
        await connection.request(target)
        await connection.request(target, headers={"Authorization": "Bearer made-up"})
    assert not routes_kept(served)
    for target in 2 * (PODS, "/version"):
        assert (await connection.request(target, headers=BOB)).status == 200
    assert (await connection.request(f"{CUSTOM}/x", headers=BOB)).status == 404
    assert (await connection.request(f"{CUSTOM}/x", headers=BOB)).status == 404
    assert routes_kept(served) == 2, "of what exists"
    served.reviews.verdict = lambda _: AccessVerdict(allowed=False)
    for _ in range(2):
        assert (await connection.request(f"{PODS}?labelSelector=a", headers=BOB)).status == 200
        assert (await connection.request(f"{CUSTOM}/nodes/n/m", headers=BOB)).status == 403
    assert routes_kept(served) == 3, "and is allowed"


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
        metrics = await encoding.join(served.monitoring.exposition_pieces())
    assert turns.count >= len(metrics) // (2 * TURN)
    assert metrics.count(b"fastpath_autoscaler_desired_replicas{") == 3_000
    answer = await served.get("/metrics")
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


async def test_too_many_in_flight(serve: ServerFactory) -> None:
    served = await serve(limits=HandlerLimits(in_flight=2))
    release = served.provider.hold()
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(served.get(PODS)) for _ in range(2)]
        await until(lambda: len(served.provider.questions) == 2)
        refused = await served.get(PODS)
        assert (refused.status, refused.text) == (429, "Too many requests, please try again later.\n")
        assert refused.headers["retry-after"] == "1"
        assert (await served.get(CUSTOM)).status == 200, "discovery is answered whatever waits"
        assert (await served.get("/readyz")).status == 200
        assert in_flight(served) == 2
        release.set()
    assert [task.result().status for task in held] == [200, 200]
    assert (await served.get(PODS)).status == 200
    assert in_flight(served) == 0


async def test_one_tenant_does_not_take_all_questions(serve: ServerFactory) -> None:
    """A namespace has as many ServiceAccounts as it makes."""
    served = await serve(limits=HandlerLimits(in_flight=8))
    accounts = {"a": "shop:a", "b": "shop:b", "hpa": "kube-system:horizontal-pod-autoscaler"}
    served.reviews.tokens |= {
        token: User(f"system:serviceaccount:{name}") for token, name in accounts.items()
    }
    served.reviews.tokens |= {name: User(name) for name in ("bob", "eve")}
    number, release = itertools.count(), served.provider.hold()

    def ask(token: str) -> Coroutine[Any, Any, Answer]:
        path = f"{PODS}?labelSelector=n%3D{next(number)}"
        return served.get(path, headers={"Authorization": f"Bearer {token}"})

    async with asyncio.TaskGroup() as group:
        held = [group.create_task(ask(token)) for token in ("a", "b") * 3]
        await until(lambda: len(served.provider.questions) == 6)
        assert [(await ask(token)).status for token in ("a", "b")] == [429, 429]
        held += [group.create_task(ask(token)) for token in ("hpa", "bob")]
        await until(lambda: len(served.provider.questions) == 8)
        assert (await ask("eve")).status == 429, "that would be more than all"
        release.set()
    assert {task.result().status for task in held} == {200}
    assert [(await ask(token)).status for token in ("a", "eve")] == [200, 200]
    assert in_flight(served) == 0


@pytest.mark.parametrize("query", ["", "?timeout=1h"])
async def test_deadline(serve: ServerFactory, query: str) -> None:
    served = await serve(limits=HandlerLimits(request_timeout=0.03))
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    served.provider.before = hang
    assert status(await served.get(f"{PODS}{query}")) == TIMEOUT
    await cancelled.wait()


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


async def test_a_large_body_is_refused_unread(served: Served) -> None:
    connection = await served.connect()
    answer = await connection.request(PODS, headers={"Content-Length": "1000000000"})
    assert status(answer) == (413, "RequestEntityTooLarge", "Request entity too large: limit is 8192")
    assert await connection.closed()


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


async def test_self_metrics(served: Served) -> None:
    served.provider.items = (pod_value("web-1", 1, time=served.clock.wall() - 2.0),)
    await served.get(PODS)
    await served.get(f"{CUSTOM}/nodes/*/m")
    await served.get(f"{CUSTOM}/namespaces/ns/metrics/m")
    await served.get(f"{EXTERNAL}/namespaces/ns/m?labelSelector=((")
    await served.get(CUSTOM)
    await served.get("/readyz")
    await served.get("/surprise/1")
    await served.get("/surprise/2")
    answer = await served.get("/metrics")
    assert answer.headers["content-type"] == metrics.CONTENT_TYPE
    counted = dict(re.findall(r"^apiserver_request_total\{(.*)\} (.*)$", answer.text, re.MULTILINE))
    assert counted == {
        f'code="{code}",group="{group}",resource="{resource}",'
        f'scope="{scope}",subresource="{subresource}",verb="{verb}",version="{version}"': count
        for code, group, version, resource, subresource, scope, verb, count in [
            ("200", CUSTOM_GROUP, "v1beta2", "*", "*", "resource", "LIST", "2.0"),
            ("200", CUSTOM_GROUP, "v1beta2", "*", "*", "cluster", "LIST", "1.0"),
            ("400", EXTERNAL_GROUP, "v1beta1", "*", "*", "cluster", "LIST", "1.0"),
            ("200", CUSTOM_GROUP, "v1beta2", "", "", "", "GET", "1.0"),
            ("200", "", "", "", "/readyz", "", "GET", "1.0"),
            ("404", "", "", "", "", "", "GET", "2.0"),
        ]
    }
    assert f'metrics_apiserver_metric_freshness_seconds_count{{group="{CUSTOM_GROUP}"}} 3.0' in answer.text
    assert f'metrics_apiserver_metric_freshness_seconds_sum{{group="{CUSTOM_GROUP}"}} 6.0' in answer.text
    assert "apiserver_request_duration_seconds_count{" in answer.text


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
