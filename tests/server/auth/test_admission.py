"""What the gate does where no caller comes: it fails closed."""

from types import SimpleNamespace
from typing import Any

import pytest

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


def admit(peer: Peer | None, route: Route) -> object:
    monitoring, clock, reviews = Monitoring(), FakeClock(), Reviews()
    store = TrustStore(ProblemLog(monitoring, clock), lookup=False)
    access = Admission(
        Authenticator(store, reviews.review_token, clock, monitoring),
        Authorizer(reviews.review_access, clock, monitoring),
    )
    request: Any = SimpleNamespace(
        method="GET",
        raw_headers=((b"X-Remote-User", b"admin"),),
        connection=SimpleNamespace(peer=peer, remote=""),
    )
    return access.admit_now(request, route)


LIVEZ = find_route("/livez", VERSIONS)


def test_a_connection_without_tls_is_not_authenticated() -> None:
    with pytest.raises(UnauthorizedError):
        admit(None, LIVEZ)


def test_a_path_without_an_access_is_refused() -> None:
    assert admit(Peer(None), LIVEZ)
    with pytest.raises(UnauthorizedError):
        admit(Peer(None), Route("unknown", RequestLabels("GET")))


def test_an_unreadable_certificate_is_refused() -> None:
    with pytest.raises(UnauthorizedError):
        admit(Peer(b"no certificate"), LIVEZ)
