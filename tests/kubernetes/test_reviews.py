"""Reviews over real HTTP: what is sent, what an answer means, when it is asked again."""

import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.reviews import ReviewClient, Throttle
from adapter.model.identity import AccessVerdict, User
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict as Access
from fastpath_sandbox.apiserver.reviews import TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import connected, error_of
from tests.prometheus.scripted import Scripted
from tests.support.clock import FakeClock

SPEC = {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}


class ObservedReviews:
    """A review client against some URL, whose pauses are noted and not slept."""

    def __init__(self, client: KubernetesClient, clock: FakeClock, paused: list[float]) -> None:
        self.paused = paused
        self.monitoring = Monitoring()
        self.faults = ProblemLog(self.monitoring, clock)
        self.reviews = ReviewClient(client, clock, self.monitoring, self.faults)

    def count(self, name: str, code: str) -> float | None:
        return self.monitoring.registry.get_sample_value(name, {"code": code})


@contextlib.asynccontextmanager
async def open_reviews(url: str, clock: FakeClock) -> AsyncIterator[ObservedReviews]:
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    async with connected(url, pause, random=0.5) as client:
        yield ObservedReviews(client, clock, paused)


@pytest.fixture
async def asking(cluster: Cluster, clock: FakeClock) -> AsyncIterator[ObservedReviews]:
    async with open_reviews(cluster.url, clock) as opened:
        yield opened


@pytest.fixture
async def asking_scripted(scripted: Scripted, clock: FakeClock) -> AsyncIterator[ObservedReviews]:
    async with open_reviews(scripted.url, clock) as opened:
        yield opened


async def test_a_token_review(cluster: Cluster, asking: ObservedReviews) -> None:
    cluster.reviews.token = lambda _: TokenVerdict(
        True, "bob", ("a", "b"), "7", extra={"z": ["1"], "a": ["2", "3"]}
    )
    assert await asking.reviews.review_token("secret") == User(
        "bob", "7", ("a", "b"), (("a", ("2", "3")), ("z", ("1",)))
    )
    assert cluster.reviews.received == [
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": "secret"},
        }
    ]
    (request,) = cluster.requests
    assert (request.method, request.path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    assert asking.count("apiserver_delegated_authn_request_total", "201") == 1
    assert asking.count("apiserver_delegated_authn_request_duration_seconds_count", "201") == 1


@pytest.mark.parametrize(
    "verdict",
    [
        TokenVerdict(authenticated=False),
        TokenVerdict(authenticated=False, error="expired"),
        TokenVerdict(True),
    ],
    ids=["unknown", "with an error", "without a name"],
)
async def test_an_unknown_token(cluster: Cluster, asking: ObservedReviews, verdict: TokenVerdict) -> None:
    cluster.reviews.token = lambda _: verdict
    assert await asking.reviews.review_token("secret") is None
    assert asking.faults.active() == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Access(allowed=True), AccessVerdict(allowed=True)),
        (Access(allowed=False, reason="no rule"), AccessVerdict(allowed=False, reason="no rule")),
        (Access(allowed=False, denied=True), AccessVerdict(allowed=False, denied=True)),
        (Access(allowed=True, denied=True, reason="r"), AccessVerdict(allowed=True, denied=True, reason="r")),
    ],
)
async def test_an_access_review(
    cluster: Cluster, asking: ObservedReviews, given: Access, expected: AccessVerdict
) -> None:
    cluster.reviews.access = lambda _: given
    assert await asking.reviews.review_access(SPEC) == expected
    assert [each["spec"] for each in cluster.reviews.received] == [SPEC]
    assert cluster.reviews.received[0]["kind"] == "SubjectAccessReview"
    assert cluster.reviews.received[0]["apiVersion"] == "authorization.k8s.io/v1"
    assert asking.count("apiserver_delegated_authz_request_total", "201") == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"status":{}}',
        b'{"status":{"allowed":"true"}}',
        b'{"status":null}',
        b'{"status":{"allowed":1}}',
        b"\xff",
    ],
)
async def test_an_invalid_answer_allows_nothing(
    scripted: Scripted, asking_scripted: ObservedReviews, body: bytes
) -> None:
    scripted.answer(201, body)
    with pytest.raises(KubernetesError, match="the response to a SubjectAccessReview is not a review"):
        await asking_scripted.reviews.review_access(SPEC)
    assert asking_scripted.count("apiserver_delegated_authz_request_total", "<error>") == 1


@pytest.mark.parametrize("body", [b"{}", b'{"status":{"authenticated":"true","user":{"username":"u"}}}'])
async def test_an_invalid_answer_names_no_user(
    scripted: Scripted, asking_scripted: ObservedReviews, body: bytes
) -> None:
    scripted.answer(201, body)
    with pytest.raises(KubernetesError, match="the response to a TokenReview is not a review"):
        await asking_scripted.reviews.review_token("t")


@pytest.mark.parametrize(
    "status",
    ["{}", '{"user":{"username":"u"}}', '{"authenticated":false,"user":{"username":"u","groups":["g"]}}'],
)
async def test_only_an_authenticated_caller_has_a_name(
    scripted: Scripted, asking_scripted: ObservedReviews, status: str
) -> None:
    scripted.answer(201, f'{{"status":{status}}}')
    assert await asking_scripted.reviews.review_token("t") is None


@pytest.mark.parametrize("status", [429, 500, 504])
async def test_a_transient_failure_is_retried(
    scripted: Scripted, asking_scripted: ObservedReviews, status: int
) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        if len(scripted.seen) < 5:
            return web.Response(status=status)
        return web.json_response({"status": {"allowed": True}}, status=201)

    scripted.respond = respond
    assert (await asking_scripted.reviews.review_access(SPEC)).allowed
    assert asking_scripted.paused == pytest.approx([0.55, 0.825, 1.2375, 1.85625])
    assert {json.dumps(json.loads(seen.body), sort_keys=True) for seen in scripted.seen} == {
        json.dumps(
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": SPEC},
            sort_keys=True,
        )
    }


@pytest.mark.parametrize("status", [400, 401, 403, 409, 503])
async def test_a_lasting_failure_is_not_retried_and_another_five_times(
    scripted: Scripted, asking_scripted: ObservedReviews, status: int
) -> None:
    for code, requests in ((status, 1), (500, 5)):
        scripted.seen.clear()
        scripted.answer(code, "no")
        with pytest.raises(KubernetesError, match=f"cannot create subjectaccessreviews: {code}"):
            await asking_scripted.reviews.review_access(SPEC)
        assert len(scripted.seen) == requests
        assert asking_scripted.count("apiserver_delegated_authz_request_total", str(code)) == 1


@pytest.mark.parametrize(("seconds", "requests"), [("2", 2), ("11", 1)])
async def test_the_servers_wish_to_wait(
    scripted: Scripted, asking_scripted: ObservedReviews, seconds: str, requests: int
) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        if len(scripted.seen) == 1:
            return web.Response(status=503, headers={"Retry-After": seconds})
        return web.json_response({"status": {"allowed": False}}, status=201)

    scripted.respond = respond
    if requests == 1:
        await error_of(asking_scripted.reviews.review_access(SPEC))
    else:
        assert not (await asking_scripted.reviews.review_access(SPEC)).allowed
        assert asking_scripted.paused == [2.0]
    assert len(scripted.seen) == requests


async def test_a_reset_connection_is_tried_again_at_once(
    scripted: Scripted, asking_scripted: ObservedReviews
) -> None:
    """As happens whenever the API server closes an idle connection just when it is used."""

    async def respond(request: web.Request) -> web.StreamResponse:
        if len(scripted.seen) < 3:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"status": {"allowed": True}}, status=201)

    scripted.respond = respond
    assert (await asking_scripted.reviews.review_access(SPEC)).allowed
    assert asking_scripted.paused == pytest.approx([0.0, 0.825])


async def test_no_server_there(cluster: Cluster, asking: ObservedReviews) -> None:
    await cluster.down()
    with pytest.raises(KubernetesError, match="Unreachable"):
        await asking.reviews.review_token("t")
    assert asking.paused == []
    assert "token-review" in dict(asking.faults.active().keys())
    await cluster.up()
    assert await asking.reviews.review_token("t") is None
    assert asking.faults.active() == {}


async def test_missing_rights_are_named(cluster: Cluster, asking: ObservedReviews) -> None:
    cluster.forbid("create", "subjectaccessreviews")
    cluster.forbid("create", "tokenreviews")
    await error_of(asking.reviews.review_access(SPEC))
    await error_of(asking.reviews.review_token("t"))
    for fault in ("access-review", "token-review"):
        assert "needs the ClusterRole system:auth-delegator" in asking.faults.active()[fault, ""]
    cluster.allow("create", "subjectaccessreviews")
    cluster.allow("create", "tokenreviews")
    await asking.reviews.review_access(SPEC)
    await asking.reviews.review_token("t")
    assert asking.faults.active() == {}


async def test_a_token_is_in_no_error_and_in_no_log(
    scripted: Scripted, asking_scripted: ObservedReviews, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    caplog.set_level(1, "aiohttp")
    scripted.answer(
        400, json.dumps({"kind": "Status", "code": 400, "reason": "BadRequest", "message": "no: s3cret!"})
    )
    raised = await error_of(asking_scripted.reviews.review_token("s3cret"))
    assert str(raised) == "token review refused: 400 BadRequest"
    assert (raised.__cause__, raised.__suppress_context__) == (None, True)
    assert "s3cret" not in repr([record.__dict__ for record in caplog.records])
    assert "s3cret" not in repr(asking_scripted.faults.active())
    (seen,) = scripted.seen
    assert "s3cret" not in f"{seen.target} {seen.headers}"


# -- the throttle --------------------------------------------------------------------------------------------


class HandThrottle:
    """A throttle whose sleeps pass the time."""

    def __init__(self, rate: float, burst: float) -> None:
        self.clock = FakeClock()
        self.waits: list[float] = []
        self.throttle = Throttle(self.clock, rate, burst, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))
        self.clock.advance(seconds)


async def test_a_burst_and_then_a_rate() -> None:
    turns = HandThrottle(rate=10, burst=3)
    for _ in range(6):
        await turns.throttle.wait()
    assert turns.waits == [0.1, 0.1, 0.1]
    turns.clock.advance(100)
    for _ in range(4):
        await turns.throttle.wait()
    assert turns.waits == [0.1, 0.1, 0.1, 0.1], "a pause gives a burst, and no more than one"


async def test_reviews_take_their_turn(cluster: Cluster, clock: FakeClock) -> None:
    turns = HandThrottle(rate=10, burst=1)
    monitoring = Monitoring()
    async with connected(cluster.url) as client:
        asking = ReviewClient(
            client, clock, monitoring, ProblemLog(monitoring, clock), throttle=turns.throttle
        )
        for _ in range(3):
            await asking.review_access(SPEC)
    assert turns.waits == [0.1, 0.1]
