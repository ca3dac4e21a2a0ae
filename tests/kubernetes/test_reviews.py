"""Reviews: that no token is repeated, and how many there are. `scripts/reviews` has what they mean."""

import json

import pytest

from adapter.kubernetes.reviews import ReviewClient, Throttle
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import connected, error_of
from tests.prometheus.scripted import Scripted
from tests.support.clock import FakeClock

SPEC = {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}


async def test_a_token_is_in_no_error_and_in_no_log(
    scripted: Scripted, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    caplog.set_level(1, "aiohttp")
    scripted.answer(
        400, json.dumps({"kind": "Status", "code": 400, "reason": "BadRequest", "message": "no: s3cret!"})
    )
    problems = ProblemLog(Monitoring(), clock)
    async with connected(scripted.url) as client:
        raised = await error_of(ReviewClient(client, clock, Monitoring(), problems).review_token("s3cret"))
    assert str(raised) == "token review refused: 400 BadRequest"
    assert (raised.__cause__, raised.__suppress_context__) == (None, True)
    assert "s3cret" not in repr([record.__dict__ for record in caplog.records])
    assert "s3cret" not in repr(problems.active())
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
