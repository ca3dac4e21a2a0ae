"""What the gate does where no caller comes: it fails closed."""

from typing import Any, cast

import pytest
from aiohttp import web

from adapter.errors import UnauthorizedError
from adapter.server.api.paths import VERSIONS
from adapter.server.api.routing import RequestLabels, Route, find_route
from adapter.server.auth.admission import Admission
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import Authorizer
from adapter.server.auth.client_cert import Peer
from adapter.server.auth.trust_store import TrustStore
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock
from tests.support.serving import Reviews


class PeerConnection:
    """A connection without TLS, or one that is gone."""

    def __init__(self, peer: Peer | None) -> None:
        self.peer = peer

    @staticmethod
    def get_extra_info(_: str) -> None:
        return None


class Request(dict[Any, Any]):
    """As much of a request as the gate looks at."""

    method = "GET"
    raw_headers = ((b"X-Remote-User", b"admin"),)

    def __init__(self, connection: PeerConnection, transport: PeerConnection | None) -> None:
        self.protocol = connection
        self.transport = transport


def admit(request: Request, route: Route) -> object:
    monitoring, clock, reviews = Monitoring(), FakeClock(), Reviews()
    store = TrustStore(ProblemLog(monitoring, clock), lookup=False)
    access = Admission(
        Authenticator(store, reviews.review_token, clock, monitoring),
        Authorizer(reviews.review_access, clock, monitoring),
    )
    return access.admit_now(cast("web.BaseRequest", request), route)


LIVEZ = find_route("/livez", VERSIONS)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "no TLS"])
def test_a_closed_connection_is_not_authenticated(*, gone: bool) -> None:
    connection = PeerConnection(None)
    with pytest.raises(UnauthorizedError):
        admit(Request(connection, None if gone else connection), LIVEZ)
    assert connection.peer is None


def test_a_path_without_an_access_is_refused() -> None:
    connection = PeerConnection(Peer(None))
    assert admit(Request(connection, connection), LIVEZ)
    with pytest.raises(UnauthorizedError):
        admit(Request(connection, connection), Route("unknown", RequestLabels("GET")))


def test_an_unreadable_certificate_is_refused() -> None:
    connection = PeerConnection(Peer(b"no certificate"))
    with pytest.raises(UnauthorizedError):
        admit(Request(connection, connection), LIVEZ)
