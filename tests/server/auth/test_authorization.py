"""Whether a caller may: over real HTTPS, with reviews that a test answers."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from adapter.errors import KubernetesError
from adapter.model.identity import AccessVerdict, User
from adapter.server.http.handler import HandlerLimits
from tests.support import waiting
from tests.support.serving import Answer, Served, ServerFactory, pod_value

ROOT = "/apis/custom.metrics.k8s.io/v1beta2"
PODS = f"{ROOT}/namespaces/default/pods/%2A/m"
QUEUE = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/m"

BOB = {"Authorization": "Bearer bob"}
EVE = {"Authorization": "Bearer eve"}


@pytest.fixture
async def guarded(served: Served) -> Served:
    """Return a server that knows two users by their tokens, and allows nothing."""
    served.reviews.tokens |= {"bob": User("bob", "1", ("devs",)), "eve": User("eve")}
    served.reviews.verdict = lambda _: AccessVerdict(allowed=False)
    served.provider.items = (pod_value("web-1", 1500),)
    served.provider.fresh_until = served.clock.monotonic() + 1000
    return served


def allow(served: Served, **wanted: str) -> None:
    """Allow bob what has these attributes."""

    def verdict(spec: dict[str, Any]) -> AccessVerdict:
        attributes = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        return AccessVerdict(spec["user"] == "bob" and wanted.items() <= attributes.items())

    served.reviews.verdict = verdict


async def test_what_is_allowed_is_answered(guarded: Served) -> None:
    allow(guarded, verb="get", resource="pods", subresource="m", namespace="default", name="*")
    assert (await guarded.get(PODS, headers=BOB)).status == 200
    assert guarded.reviews.specs == [
        {
            "user": "bob",
            "uid": "1",
            "groups": ["devs", "system:authenticated"],
            "resourceAttributes": {
                "verb": "get",
                "group": "custom.metrics.k8s.io",
                "version": "v1beta2",
                "resource": "pods",
                "subresource": "m",
                "name": "*",
                "namespace": "default",
            },
        }
    ]


async def test_a_kept_answer_is_not_for_everybody(guarded: Served) -> None:
    allow(guarded, resource="pods")
    assert (await guarded.get(PODS, headers=BOB)).status == 200
    refused = await guarded.get(PODS, headers=EVE)
    assert refused.status == 403
    assert b"web-1" not in refused.body
    assert len(guarded.provider.questions) == 1


async def test_anonymous_gets_nothing_but_health(guarded: Served) -> None:
    for target in ("/healthz", "/livez", "/readyz", "/readyz?verbose", "/livez?exclude=ping"):
        assert (await guarded.get(target)).status == 200, target
    assert guarded.reviews.specs == []
    pages = ("/metrics", "/openapi/v2", "/openapi/v3", "/", "/apis", "/version", "/readyz/ping", "/unknown")
    for target in (*pages, ROOT, f"{ROOT}/", PODS, QUEUE):
        refused = await guarded.get(target)
        assert refused.status == 403, target
        assert 'User \\"system:anonymous\\" cannot ' in refused.text
        spec = guarded.reviews.specs[-1]
        assert (spec["user"], spec["groups"]) == ("system:anonymous", ["system:unauthenticated"])


async def test_a_bad_selector_is_reported_to_authorized_callers(guarded: Served) -> None:
    target = f"{PODS}?labelSelector=)"
    assert (await guarded.get(target, headers=BOB)).status == 403
    allow(guarded)
    guarded.clock.advance(10)
    assert (await guarded.get(target, headers=BOB)).status == 400


@pytest.mark.parametrize(
    "error",
    [
        KubernetesError(0, "Unreachable", "https://10.0.0.1 is down"),
        KubernetesError(403, "Forbidden", "not you"),
    ],
    ids=["down", "refused"],
)
async def test_a_failed_review_allows_nothing(guarded: Served, error: KubernetesError) -> None:
    guarded.reviews.tokens["bob"] = User("bob")
    guarded.reviews.verdict = lambda _: AccessVerdict(allowed=True)
    assert (await guarded.get("/readyz/ping", headers=BOB)).status == 200  # the token is known now
    guarded.reviews.error = error
    failed = await guarded.get(PODS, headers=BOB)
    assert failed.status == 500
    assert failed.json["message"] == "Internal error occurred: unable to review access"
    assert "10.0.0.1" not in failed.text
    assert guarded.provider.questions == []
    guarded.reviews.error = None
    assert (await guarded.get(PODS, headers=BOB)).status == 200, "a failure is not kept"


async def test_allowed_and_denied_at_once_is_no_permission(guarded: Served) -> None:
    guarded.reviews.verdict = lambda _: AccessVerdict(allowed=True, denied=True)
    for _ in range(2):
        assert (await guarded.get(PODS, headers=BOB)).status == 500
    assert guarded.provider.questions == []


async def test_a_review_that_takes_too_long(guarded: Served) -> None:
    guarded.reviews.gate.clear()
    slow = await guarded.get(f"{PODS}?timeout=50ms", headers=BOB)
    assert (slow.status, slow.json["reason"]) == (504, "Timeout")
    assert guarded.provider.questions == []


async def test_verdicts_are_kept_for_their_time(guarded: Served) -> None:
    async def status() -> int:
        return (await guarded.get(PODS, headers=BOB)).status

    assert await status() == 403
    allow(guarded)
    guarded.clock.advance(9.9)
    assert await status() == 403
    guarded.clock.advance(0.1)
    assert await status() == 200
    guarded.reviews.verdict = lambda _: AccessVerdict(allowed=False)
    guarded.clock.advance(9.9)
    assert await status() == 200
    guarded.clock.advance(0.1)
    assert await status() == 403
    assert len(guarded.reviews.specs) == 3


async def test_everything_about_an_access_is_part_of_its_key(guarded: Served) -> None:
    extra = (("scopes", ("a",)),)
    guarded.reviews.tokens |= {
        "0": User("u"),
        "1": User("v"),
        "2": User("u", "1"),
        "3": User("u", groups=("g",)),
        "4": User("u", extra=extra),
    }
    guarded.reviews.verdict = lambda _: AccessVerdict(allowed=True)
    for token in "01234":
        assert (await guarded.get(PODS, headers={"Authorization": f"Bearer {token}"})).status == 200
    targets = [
        f"{ROOT}/namespaces/other/pods/%2A/m",
        f"{ROOT}/namespaces/default/pods/%2A/n",
        f"{ROOT}/namespaces/default/pods/x/m",
        f"{ROOT}/namespaces/default/services/%2A/m",
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/%2A/m",
        QUEUE,
        f"{QUEUE}?labelSelector=a",
        f"{QUEUE}?labelSelector=b",
        "/apis",
        "/version",
    ]
    for target in targets:
        assert (await guarded.get(target, headers={"Authorization": "Bearer 0"})).status == 200, target
    assert len(guarded.reviews.specs) == 5 + len(targets)
    assert len({json.dumps(spec, sort_keys=True) for spec in guarded.reviews.specs}) == 5 + len(targets)


async def test_a_huge_access_is_not_kept(guarded: Served) -> None:
    allow(guarded)
    for _ in range(2):
        assert (await guarded.get(f"{ROOT}/nodes/{'x' * 10_000}/m", headers=BOB)).status == 200
    assert len(guarded.reviews.specs) == 2


async def test_waiting_for_reviews_is_bounded(serve: ServerFactory) -> None:
    served = await serve(limits=HandlerLimits(in_flight=2))
    served.reviews.gate.clear()
    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(served.get(f"/{number}")) for number in range(2)]
        await waiting.until(lambda: served.in_review == 2)
        assert (await served.get("/more")).status == 429
        assert (await served.get("/livez")).status == 200
        metric = group.create_task(served.get(PODS))
        await waiting.until(lambda: served.in_review == 3)
        served.reviews.gate.set()
    assert metric.result().status == 200, "a request for metrics is not kept out by others"
    assert [task.result().status for task in callers] == [404, 404]


async def test_strangers_do_not_pile_up_reviews(serve: ServerFactory) -> None:
    served = await serve()
    served.reviews.tokens["bob"] = User("bob")
    served.reviews.gate.clear()
    for number in range(20):
        assert (await served.get(f"/{number}?timeout=1ns")).status == 504
    assert (await served.get("/more?timeout=1ns")).status == 429
    assert (await served.get("/19?timeout=1ns")).status == 504, "that one is under way"
    async with asyncio.TaskGroup() as group:
        bob = group.create_task(served.get("/more", headers=BOB))
        await waiting.until(lambda: served.reviews.reviewed)
        served.reviews.gate.set()
    assert bob.result().status == 404, "who has a name does not wait behind them"
    assert len(served.reviews.specs) == 21


async def test_one_user_does_not_take_all_reviews(serve: ServerFactory) -> None:
    served = await serve()
    served.reviews.tokens |= {"bob": User("bob"), "alice": User("alice")}
    alice = {"Authorization": "Bearer alice"}
    for headers in (BOB, alice):
        assert (await served.get("/known", headers=headers)).status == 404
    served.reviews.gate.clear()
    connection = await served.connect()
    statuses = [
        (await connection.request(f"/{number}?timeout=1ns", headers=BOB)).status for number in range(401)
    ]
    assert statuses == [504] * 100 + [429] * 301
    async with asyncio.TaskGroup() as group:
        other = group.create_task(served.get("/more", headers=alice))
        await waiting.until(lambda: served.reviews.specs[-1]["user"] == "alice" or other.done())
        served.reviews.gate.set()
    assert other.result().status == 404


async def test_callers_of_one_user_do_not_keep_out_those_of_another(serve: ServerFactory) -> None:
    served = await serve(limits=HandlerLimits(in_flight=8))
    served.reviews.tokens |= {"bob": User("bob"), "alice": User("alice")}
    alice = {"Authorization": "Bearer alice"}
    for headers in (BOB, alice):
        assert (await served.get("/known", headers=headers)).status == 404
    served.reviews.gate.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(served.get("/a", headers=BOB))
        await waiting.until(lambda: served.in_review == 2)
        assert (await served.get("/a", headers=BOB)).status == 429
        other = group.create_task(served.get("/a", headers=alice))
        await waiting.until(lambda: served.in_review == 3 or other.done())
        served.reviews.gate.set()
    assert other.result().status == 404


@pytest.mark.parametrize("held", ["token", "anonymous"])
async def test_each_standing_waits_by_itself(serve: ServerFactory, held: str) -> None:
    served = await serve(limits=HandlerLimits(in_flight=1))
    served.reviews.tokens["bob"] = User("bob")
    assert (await served.get("/known", headers=BOB)).status == 404
    served.reviews.gate.clear()
    headers = {"anonymous": {}, "token": {"Authorization": "Bearer unknown"}, "named": BOB}
    async with asyncio.TaskGroup() as group:
        first = group.create_task(served.get("/a", headers=headers.pop(held)))
        await waiting.until(lambda: served.in_review == 1)
        rest = [group.create_task(served.get("/b", headers=each)) for each in headers.values()]
        await waiting.until(lambda: served.in_review == 3)
        served.reviews.gate.set()
    assert {first.result().status, *(each.result().status for each in rest)} == {401, 404}


async def test_impersonation_is_refused(guarded: Served) -> None:
    guarded.reviews.tokens["bob"] = User("bob", groups=("system:masters",))
    refused = await guarded.get(PODS, headers={**BOB, "IMPERSONATE-User": "admin"})
    assert refused.status == 403
    assert refused.json["message"] == "forbidden: impersonation is not possible here"
    assert guarded.provider.questions == []


async def test_more_open_paths(serve: ServerFactory) -> None:
    served = await serve(always_allow=("/livez", "/version", "/openapi*", "apis/custom.metrics.k8s.io/*"))
    served.reviews.verdict = lambda _: AccessVerdict(allowed=False)
    statuses: Mapping[str, int] = {
        "/livez": 200,
        "/readyz": 403,
        "/version": 200,
        "/version/x": 403,
        "/openapi/v2": 200,
        ROOT: 200,
        "/apis": 403,
        f"{ROOT}/nodes/n/m": 403,
    }
    found: dict[str, Answer] = {target: await served.get(target) for target in statuses}
    assert {target: answer.status for target, answer in found.items()} == statuses


@pytest.mark.parametrize("paths", ["/", "*", "/*"])
async def test_an_open_root_opens_no_metric(serve: ServerFactory, paths: str) -> None:
    for anonymous, status in ((True, 403), (False, 401)):
        served = await serve(always_allow=(paths,), anonymous=anonymous)
        served.reviews.verdict = lambda _: AccessVerdict(allowed=False)
        assert (await served.get("/")).status == 200
        assert (await served.get(PODS)).status == status


async def test_attempts_are_counted(guarded: Served) -> None:
    for verdict in (
        AccessVerdict(True),
        AccessVerdict(False),
        AccessVerdict(False, denied=True),
        AccessVerdict(True, denied=True),
    ):
        guarded.reviews.verdict = lambda _, verdict=verdict: verdict  # type: ignore[misc]
        await guarded.get(PODS, headers=BOB)
        guarded.clock.advance(10)
    await guarded.get("/livez")
    value = guarded.monitoring.registry.get_sample_value
    counted = {
        result: value("authorization_attempts_total", {"result": result})
        for result in ("allowed", "no-opinion", "denied", "error")
    }
    assert counted == {"allowed": 2, "no-opinion": 1, "denied": 1, "error": 1}
