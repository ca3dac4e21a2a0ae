"""TokenReviews and SubjectAccessReviews: authentication and authorization of callers by the API server.

A token is sent in the body of a token review and appears nowhere else: in no log, no error and no exception
cause. A response that is not a complete review raises, so that it cannot be taken for permission.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec
from prometheus_client import Counter, Histogram

from adapter import errors
from adapter.kubernetes.client import KubernetesClient
from adapter.model import identity
from adapter.model.clock import Clock
from adapter.model.identity import AccessVerdict, User
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

TOKEN_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

RATE, BURST = 200.0, 400.0
"""Reviews per second, and their burst; upstream's limits."""

_NO_STATUS = "<error>"


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()


_Answer = TypeVar("_Answer")


class _CompletedReview(msgspec.Struct, Generic[_Answer], frozen=True):
    status: _Answer


class _ReviewKind(NamedTuple, Generic[_Answer]):
    """A kind of review, with the metrics of its requests."""

    name: str
    path: str
    decoder: msgspec.json.Decoder[_CompletedReview[_Answer]]
    total: Counter
    duration: Histogram


class Throttle:
    """A rate limiter: `rate` calls per second, up to `burst` at once; further calls wait in order."""

    def __init__(
        self,
        clock: Clock,
        rate: float = RATE,
        burst: float = BURST,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._step = 1 / rate
        self._room = (burst - 1) / rate
        self._sleep = sleep
        self._next = clock.monotonic() - self._room

    async def wait(self) -> None:
        now = self._clock.monotonic()
        turn = max(self._next, now - self._room)
        self._next = turn + self._step
        if turn > now:
            await self._sleep(turn - now)


class ReviewClient:
    """Reviews by one API server. Without a valid review, calls raise `errors.KubernetesError`."""

    def __init__(
        self,
        client: KubernetesClient,
        clock: Clock,
        monitoring: Monitoring,
        problems: ProblemLog,
        *,
        throttle: Throttle | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._problems = problems
        self._throttle = throttle or Throttle(clock)
        self._token_kind = _ReviewKind(
            "TokenReview",
            TOKEN_PATH,
            msgspec.json.Decoder(_CompletedReview[_TokenStatus]),
            monitoring.token_reviews,
            monitoring.token_review_duration,
        )
        self._access_kind = _ReviewKind(
            "SubjectAccessReview",
            ACCESS_PATH,
            msgspec.json.Decoder(_CompletedReview[AccessVerdict]),
            monitoring.access_reviews,
            monitoring.access_review_duration,
        )

    async def review_token(self, token: str) -> User | None:
        """Return the user of a token, with groups; None if the token is not valid."""
        try:
            status = await self._review(self._token_kind, {"token": token})
        except errors.KubernetesError as error:
            # the API server's message may repeat the token, and so may the cause
            text = str(error)
            if error.status:
                text = f"token review refused: {error.status} {error.reason}{_hint(error)}"
            self._problems.report("token-review", "bearer tokens cannot be reviewed; they are refused", text)
            raise errors.KubernetesError(error.status, error.reason, text) from None
        self._problems.resolve("token-review")
        user = status.user
        if not status.authenticated or not user.username:
            return None
        return User(user.username, user.uid, tuple(user.groups or ()), identity.sort_extra(user.extra or {}))

    async def review_access(self, spec: Mapping[str, object]) -> AccessVerdict:
        """Return the status of a SubjectAccessReview with this spec."""
        try:
            verdict = await self._review(self._access_kind, spec)
        except errors.KubernetesError as error:
            text = f"{error}{_hint(error)}"
            self._problems.report(
                "access-review", "access cannot be reviewed; requests that need it fail", text
            )
            raise
        self._problems.resolve("access-review")
        return verdict

    async def _review(self, kind: _ReviewKind[_Answer], spec: Mapping[str, object]) -> _Answer:
        await self._throttle.wait()
        started = self._clock.monotonic()
        code = _NO_STATUS
        try:
            api_version = kind.path.removeprefix("/apis/").rpartition("/")[0]
            body = await self._client.create(
                kind.path, {"apiVersion": api_version, "kind": kind.name, "spec": spec}
            )
            answer = kind.decoder.decode(body.content).status
            code = "201"
        except ValueError as error:  # msgspec's own errors are ValueErrors, as is bad UTF-8
            raise errors.KubernetesError(
                0, "Decode", f"the response to a {kind.name} is not a review"
            ) from error
        except errors.KubernetesError as error:
            code = str(error.status or _NO_STATUS)
            raise
        finally:
            kind.total.labels(code).inc()
            kind.duration.labels(code).observe(self._clock.monotonic() - started)
        return answer


def _hint(error: errors.KubernetesError) -> str:
    return "; the service account needs the ClusterRole system:auth-delegator" if error.status == 403 else ""
