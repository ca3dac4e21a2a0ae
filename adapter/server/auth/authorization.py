"""Authorization by the API server's access reviews, which are cached for a while.

The order is upstream's: the group ``system:masters``, paths that are open to all, then a SubjectAccessReview.
Requests that come through kube-apiserver are reviewed too, since it promises nothing about what it allows
before it forwards one. A review that fails allows nothing.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from adapter import errors
from adapter.model.clock import Clock
from adapter.model.identity import ANONYMOUS, MASTERS, AccessVerdict, User
from adapter.server.auth.attributes import Attributes
from adapter.server.auth.review_cache import ALL_REVIEWS, SHARE, ReviewCache, ReviewLimit
from adapter.telemetry import logs, metrics

log = logging.getLogger(__name__)

_LARGEST_KEPT = 10_000
"""Characters of an access whose review is cached: a caller chooses them."""

_ANONYMOUS_REVIEWS = ReviewLimit("anonymous", 20)
"""Limit on reviews of anonymous callers, which can ask for any number of accesses; users do not wait for
them."""


class AccessReviewer(Protocol):
    """Reviews accesses; raises `errors.KubernetesError` where there is no answer."""

    async def review_access(self, spec: dict[str, object]) -> AccessVerdict:
        """Return the verdict on the spec of a SubjectAccessReview."""
        ...


class AllowedPaths:
    """Paths that need no authorization: exact ones, and prefixes, written with a ``*`` at the end."""

    def __init__(self, paths: Iterable[str]) -> None:
        bare = [path.removeprefix("/") for path in paths]
        self._exact = frozenset(path for path in bare if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in bare if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        bare = path.removeprefix("/")
        return bare in self._exact or bare.startswith(self._prefixes)


class Authorizer:
    """Decides. `allowed_ttl` and `denied_ttl` are how many seconds a verdict is used."""

    def __init__(
        self,
        reviewer: AccessReviewer,
        clock: Clock,
        own_metrics: metrics.Monitoring,
        *,
        allowed_ttl: float = 10.0,
        denied_ttl: float = 10.0,
        always_allow: Iterable[str] = ("/healthz", "/readyz", "/livez"),
    ) -> None:
        self._open_paths = AllowedPaths(always_allow)
        self._reviewer = reviewer
        self._cache: ReviewCache[tuple[str, str], AccessVerdict] = ReviewCache(
            clock,
            own_metrics.access_cache,
            lambda verdict: allowed_ttl if verdict.allowed and not verdict.denied else denied_ttl,
            name="access review",
            cache="accesses",
            monitoring=own_metrics,
            weigh=lambda key: len(key[0]) + len(key[1]),
        )
        attempts = own_metrics.authorization_attempts
        self._allowed, self._denied = attempts.labels("allowed"), attempts.labels("denied")
        self._no_opinion, self._failed = attempts.labels("no-opinion"), attempts.labels("error")

    def is_open(self, wanted: Attributes) -> bool:
        """Return whether an access needs no review; only a path outside the API groups can be open."""
        return bool(wanted.path) and wanted.path in self._open_paths

    def check_now(self, user: User, wanted: Attributes) -> bool:
        """Return whether the access is known to be allowed; False means that it needs a review.

        Raises ForbiddenError.
        """
        if MASTERS in user.groups or self.is_open(wanted):
            self._allowed.inc()
            return True
        verdict = self._cache.find((user.key, wanted.key))
        if verdict is None:
            return False
        self._judge(user, wanted, verdict)
        return True

    async def check(self, user: User, wanted: Attributes) -> None:
        """Have the access reviewed.

        Raises ForbiddenError for a refusal, InternalError for a review that failed, TooManyRequestsError.
        """
        try:
            verdict = await self._cache.ask(
                (user.key, wanted.key),
                lambda: self._reviewer.review_access(user.spec | wanted.spec),
                keep=len(wanted.key) <= _LARGEST_KEPT,
                limits=_limits_of(user),
            )
        except errors.KubernetesError as error:
            self._failed.inc()
            raise errors.InternalError("unable to review access") from error
        self._judge(user, wanted, verdict)

    async def close(self) -> None:
        await self._cache.close()

    def _judge(self, user: User, wanted: Attributes, verdict: AccessVerdict) -> None:
        if verdict.allowed and verdict.denied:
            self._failed.inc()
            raise errors.InternalError("the access review both allowed and denied")
        if verdict.allowed:
            self._allowed.inc()
            return
        (self._denied if verdict.denied else self._no_opinion).inc()
        log.debug("forbidden", extra=logs.facts(user=user.name, access=wanted.key, reason=verdict.reason))
        raise wanted.refusal(user, verdict.reason)


def _limits_of(user: User) -> Sequence[ReviewLimit]:
    """Return the limits on the reviews of a user: one user takes a share of all reviews at most."""
    return (_ANONYMOUS_REVIEWS,) if user is ANONYMOUS else (ALL_REVIEWS, ReviewLimit(user.name, SHARE))
