"""What the gate does where no caller comes: it fails closed."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.errors import ForbiddenError, InternalError, UnauthorizedError
from adapter.model.identity import AccessVerdict, User
from adapter.server.api.paths import VERSIONS, MetricRequest
from adapter.server.api.routing import RequestLabels, Route, find_route
from adapter.server.auth.admission import Admission
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import Attributes, Authorizer, build_attributes
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


@pytest.mark.parametrize(
    ("verdict", "seconds"),
    [(AccessVerdict(True), 30), (AccessVerdict(False), 5), (AccessVerdict(True, denied=True), 5)],
)
async def test_a_verdict_is_used_as_long_as_its_kind(verdict: AccessVerdict, seconds: float) -> None:
    clock, reviewed = FakeClock(), []

    async def review(spec: object) -> AccessVerdict:
        reviewed.append(spec)
        return verdict

    authorizer = Authorizer(review, clock, Monitoring(), allowed_ttl=30, denied_ttl=5)
    for pause, count in ((0, 1), (seconds - 1, 1), (1, 2)):
        clock.advance(pause)
        with contextlib.suppress(ForbiddenError, InternalError):
            if not authorizer.check_now(User("web"), Attributes("get", "/metrics")):
                await authorizer.check(User("web"), Attributes("get", "/metrics"))
        assert len(reviewed) == count


@pytest.mark.parametrize(("canonical", "name", "reviewed"), [("pods", "web", "pods web"), ("", None, "po *")])
def test_the_object_of_a_review(canonical: str, name: str | None, reviewed: str) -> None:
    request = MetricRequest("object", "custom.metrics.k8s.io", "v1beta2", "shop", "po", name, "load")
    made = build_attributes(request, canonical, None, watch=False)
    assert f"{made.resource} {made.name}" == reviewed


def test_an_unreadable_certificate_is_refused() -> None:
    with pytest.raises(UnauthorizedError):
        admit(Peer(b"no certificate"), LIVEZ)
