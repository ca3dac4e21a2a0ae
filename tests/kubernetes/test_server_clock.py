"""The clock beside that of the API server: what a response tells, and what a decision is told."""

from email.utils import formatdate

import pytest
from aiohttp import web

from adapter.kubernetes.server_clock import CLOCK, DIFFERS, UNCOMPARED, ServerClock
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.kubernetes import apiclient
from tests.kubernetes.apiclient import answering
from tests.support.clock import WALL, FakeClock


class Comparison:
    """A clock that is `shift` seconds from that of an API server, which is right."""

    def __init__(self, shift: float = 0.0) -> None:
        self.clock = FakeClock(WALL + shift)
        self.problems = ProblemLog(Monitoring(), self.clock)
        self.compared = ServerClock(self.clock, self.problems)

    def hear(self, seconds: float = 0.1) -> None:
        """Take a response, after so many seconds."""
        sent, date = self.compared.monotonic(), formatdate(self.clock.monotonic() - 1000 + WALL, usegmt=True)
        self.clock.advance(seconds)
        self.compared.note(sent, date)

    def set(self, by: float) -> None:
        self.clock.set_wall(self.clock.wall() + by)

    def faults(self) -> list[str]:
        return [text for (fault, _), text in self.problems.active().items() if fault == CLOCK]


def test_before_the_first_comparison_the_clock_is_in_doubt() -> None:
    comparison = Comparison()
    assert comparison.compared.doubt() == UNCOMPARED
    for date in ("", "soon", "Tue, 14 Nov 99999 22:13:20 GMT"):
        comparison.compared.note(comparison.compared.monotonic(), date)
        assert comparison.compared.doubt() == UNCOMPARED
    comparison.hear()
    assert (comparison.compared.doubt(), comparison.faults()) == ("", [])


@pytest.mark.parametrize(("shift", "where"), [(300.0, "ahead"), (-300.0, "behind")])
def test_a_clock_that_was_wrong_from_the_start_is_in_doubt_until_it_is_set(shift: float, where: str) -> None:
    comparison = Comparison(shift)
    comparison.hear()
    assert comparison.compared.doubt() == DIFFERS
    (text,) = comparison.faults()
    assert text.startswith(f"it is more than 5 s {where}: ")
    comparison.set(-shift)
    assert comparison.compared.doubt() == ""
    comparison.hear()
    assert comparison.faults() == []


@pytest.mark.parametrize("shift", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_in_doubt_before_the_next_response(shift: float) -> None:
    comparison = Comparison()
    comparison.hear()
    comparison.set(shift)
    assert comparison.compared.doubt() == DIFFERS
    comparison.set(-shift)
    assert comparison.compared.doubt() == ""


@pytest.mark.parametrize("shift", [4.0, -4.0])
def test_it_may_be_some_seconds_off(shift: float) -> None:
    comparison = Comparison(shift)
    comparison.hear()
    assert comparison.compared.doubt() == ""


def test_a_slow_response_does_not_hide_what_an_earlier_one_has_shown() -> None:
    comparison = Comparison(-300.0)
    comparison.hear(20.0)
    assert comparison.compared.doubt() == DIFFERS, "the first one counts in any case"
    comparison.set(300.0)
    comparison.hear()
    comparison.hear(3600.0)
    assert comparison.compared.doubt() == ""
    for shift in (30.0, -60.0):
        comparison.set(shift)
        assert comparison.compared.doubt() == DIFFERS


@pytest.mark.parametrize(
    ("path", "doubt"),
    [
        ("/version", DIFFERS),
        ("/api/v1/namespaces/shop/pods", DIFFERS),
        ("/apis/coordination.k8s.io/v1/namespaces/fastpath/leases/fastpath", DIFFERS),
        ("/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/rps", UNCOMPARED),
        ("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", UNCOMPARED),
    ],
)
async def test_each_response_of_the_api_server_is_compared(path: str, doubt: str) -> None:
    """Those of servers behind it have the Date of these, which may run on the node of the scaler."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({})

    comparison = Comparison()
    async with answering(answer) as host, apiclient.connected(host) as client:
        client.server_clock = comparison.compared
        await client.get(path)
    assert comparison.compared.doubt() == doubt, "the response has the date of today"
