"""Authentication in upstream's order: front proxy, client certificate, bearer token, else anonymous.

An authenticator that refuses does not keep the next one from succeeding. Credentials that all of them reject
yield 401; they never fall back to anonymous. Tokens are kept as keyed digests only, and are sent nowhere but
into a token review.

The front proxy is kube-apiserver's aggregator, which sends the name of its caller in request headers. Those
headers are client_trust only on a connection whose client certificate leads to the front proxy's authority
and has one of the allowed names (`client_cert`). On any other connection they mean nothing, whatever else the
caller is.
"""

import logging
import secrets
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from cachetools import LRUCache
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from adapter import errors
from adapter.model import identity
from adapter.model.clock import Clock
from adapter.model.identity import ANONYMOUS, User
from adapter.server.auth import request_header, trust
from adapter.server.auth.client_cert import Peer, PeerJudge, PeerVerdict
from adapter.server.auth.request_header import HeaderReader, RequestCredentials
from adapter.server.auth.review_cache import ALL_REVIEWS, SHARE, ReviewCache, ReviewLimit
from adapter.server.auth.trust import ClientTrust, HeaderNames
from adapter.server.auth.trust_store import TrustStore
from adapter.telemetry import logs, metrics

log = logging.getLogger(__name__)

_SAY_AGAIN = 60.0
"""Seconds between two warnings about front proxies that are not accepted."""

_NO_NAMES = HeaderNames((), (), (), ())

_UNKNOWN = ReviewLimit("unknown tokens", 200)
"""Limit on reviews of tokens never accepted before, which anyone can make up; known tokens do not wait for
them."""

_KNOWN_TOKENS = 8192


class TokenReviewer(Protocol):
    """Reviews tokens; raises `errors.KubernetesError` where there is no answer."""

    async def review_token(self, token: str) -> User | None:
        """Return the user of a token, None for an invalid one."""
        ...


class IdentifiedCaller(NamedTuple):
    """The user behind a request, None while its token has to be reviewed, and the credentials of its headers.

    `known` is the user's name from the last review of the token, "" where it has not been accepted.
    """

    user: User | None
    credentials: RequestCredentials
    known: str = ""


class _TokenOwner(NamedTuple):
    """The result of a token review; None for an invalid token."""

    user: User | None


class Authenticator:
    """Identifies callers. `token_ttl` is how many seconds the review of a token is used."""

    def __init__(
        self,
        store: TrustStore,
        reviewer: TokenReviewer,
        clock: Clock,
        own_metrics: metrics.Monitoring,
        *,
        token_ttl: float = 10.0,
    ) -> None:
        self._store = store
        self._reviewer = reviewer
        self._clock = clock
        self._judge = PeerJudge()
        self._hmac = HMAC(secrets.token_bytes(32), SHA256())
        self._tokens: ReviewCache[bytes, _TokenOwner] = ReviewCache(
            clock,
            own_metrics.token_cache,
            lambda _: token_ttl,
            name="token review",
            cache="tokens",
            monitoring=own_metrics,
        )
        self._known: LRUCache[bytes, str] = LRUCache(_KNOWN_TOKENS)
        self._monitoring = own_metrics
        self._generation = -1
        self._reader = HeaderReader(_NO_NAMES)
        self._warned: float | None = None
        self._not_accepted = own_metrics.faults.labels("front-proxy")
        attempts = own_metrics.authentication_attempts
        self._succeeded, self._failed = attempts.labels("success"), attempts.labels("error")

    def identify_now(self, headers: Iterable[tuple[bytes, bytes]], peer: Peer) -> IdentifiedCaller:
        """Return the caller where that takes no review.

        Raises UnauthorizedError, and BadRequestError for bad headers.
        """
        client_trust = self._store.current
        if client_trust.generation != self._generation:
            self._generation = client_trust.generation
            names = client_trust.front_proxy.headers if client_trust.front_proxy else _NO_NAMES
            self._reader = HeaderReader(names, self._monitoring)
        credentials = self._reader.read(headers)
        user, failed = (
            self._identify_by_certificate(credentials, peer, client_trust) if peer.shown else (None, False)
        )
        if user is not None:
            return self._succeed(user, credentials)
        token = request_header.bearer_token(credentials.authorization) if credentials.authorization else b""
        if token:
            digest = self._digest(token)
            owner = self._tokens.find(digest)
            if owner is None:
                return IdentifiedCaller(None, credentials, self._known.get(digest, ""))
            if owner.user is not None:
                return self._succeed(owner.user, credentials)
        if token or failed:
            self._failed.inc()
            raise errors.UnauthorizedError
        return self._succeed(ANONYMOUS, credentials)

    async def identify_by_token(self, credentials: RequestCredentials, address: str) -> User:
        """Have the token of a caller at `address` reviewed.

        Raises UnauthorizedError, also where there is no answer, and TooManyRequestsError.
        """
        token = request_header.bearer_token(credentials.authorization)
        digest = self._digest(token)

        async def review() -> _TokenOwner:
            user = await self._reviewer.review_token(token.decode())
            return _TokenOwner(identity.complete_groups(user) if user is not None else None)

        limits = (ALL_REVIEWS,) if digest in self._known else (_UNKNOWN, ReviewLimit(address, SHARE))
        try:
            owner = await self._tokens.ask(digest, review, limits=limits)
        except errors.KubernetesError as error:
            self._failed.inc()
            raise errors.UnauthorizedError from error
        if owner.user is None:
            self._known.pop(digest, None)
            self._failed.inc()
            raise errors.UnauthorizedError
        self._known[digest] = owner.user.name
        self._succeeded.inc()
        return owner.user

    def judge(self, peer: Peer) -> PeerVerdict:
        """Return the verdict on a peer's certificate under the trust in force; the peer keeps it."""
        return self._verdict_on(peer, self._store.current)

    async def close(self) -> None:
        await self._tokens.close()

    def _identify_by_certificate(
        self, credentials: RequestCredentials, peer: Peer, client_trust: ClientTrust
    ) -> tuple[User | None, bool]:
        """Return the user that a certificate names or is front proxy for, and whether it was refused."""
        verdict = self._verdict_on(peer, client_trust)
        if verdict.is_proxy:
            user = self._reader.user(credentials.lines)
            if user is not None:
                return user, False
        elif credentials.lines:
            self._warn(peer, client_trust, verdict)
        return verdict.user, verdict.failed

    def _verdict_on(self, peer: Peer, client_trust: ClientTrust) -> PeerVerdict:
        verdict, now = peer.verdict, self._clock.wall()
        if verdict is None or verdict.generation != client_trust.generation or now >= verdict.until:
            verdict = peer.verdict = self._judge.judge(peer, client_trust, now)
        return verdict

    def _digest(self, token: bytes) -> bytes:
        digest = self._hmac.copy()  # a third of the time of a new HMAC of the standard library
        digest.update(token)
        return digest.finalize()

    def _succeed(self, user: User, credentials: RequestCredentials) -> IdentifiedCaller:
        self._succeeded.inc()
        return IdentifiedCaller(user, credentials)

    def _warn(self, peer: Peer, client_trust: ClientTrust, verdict: PeerVerdict) -> None:
        """Log why a client certificate is not a front proxy's: the first question when aggregation fails."""
        self._not_accepted.inc()
        now, proxy, certificate = self._clock.monotonic(), client_trust.front_proxy, peer.certificate
        if self._warned is not None and now - self._warned < _SAY_AGAIN:
            return
        self._warned = now
        found = logs.facts(
            name=trust.common_name(certificate) if certificate else "",
            expected=", ".join(proxy.allowed_names) or "any" if proxy else "",
            issuer=certificate.issuer.rfc4514_string() if certificate else "",
            authorities="; ".join(proxy.bundle.subjects) if proxy else "",
            reason=verdict.refused,
        )
        log.warning("a client certificate with request headers is not accepted as front proxy", extra=found)
