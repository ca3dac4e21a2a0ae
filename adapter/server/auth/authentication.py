"""Who a caller is, in upstream's order: front proxy, client certificate, bearer token, else anonymous.

Not here: chains of certificates (`peers`, `trust`), what a caller may do (`authorization`). The law: an authenticator that
refuses does not keep the next from succeeding, but whoever showed something and was refused by all is nobody (401), never
anonymous. Tokens are kept as keyed digests only, and go nowhere but into a token review.
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
from adapter.server.auth.review_cache import EVERYBODY, SHARE, ReviewCache, ReviewLimit
from adapter.server.auth.trust import ClientTrust, HeaderNames
from adapter.server.auth.trust_store import TrustStore
from adapter.telemetry import logs, metrics

log = logging.getLogger(__name__)

_SAY_AGAIN = 60.0
"""Seconds between two warnings of front proxies that are not accepted."""

_NO_NAMES = HeaderNames((), (), (), ())

_UNKNOWN = ReviewLimit("unknown tokens", 200)
"""Anyone can make up tokens. Tokens accepted before are reviewed again beside them, not behind them."""

_KNOWN_TOKENS = 8192


class TokenReviewer(Protocol):
    """Who is asked; raises `errors.KubernetesError` where there is no answer."""

    async def review_token(self, token: str) -> User | None:
        """Return whose token it is, None for nobody's."""
        ...


class IdentifiedCaller(NamedTuple):
    """Whom a request comes from, None while a token review has to say so, and what its headers say.

    `known` is the user's name from the last review of the token, "" where it has not been accepted.
    """

    user: User | None
    said: RequestCredentials
    known: str = ""


class _TokenOwner(NamedTuple):
    """Whose a token is; None for nobody's."""

    user: User | None


class Authenticator:
    """Names callers. `token_ttl` is how many seconds the answer about a token is used again."""

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
        """Return the caller where that takes no review. Raises UnauthorizedError, and BadRequestError for bad headers."""
        believed = self._store.current
        if believed.generation != self._generation:
            self._generation = believed.generation
            names = believed.front_proxy.headers if believed.front_proxy else _NO_NAMES
            self._reader = HeaderReader(names, self._monitoring)
        said = self._reader.read(headers)
        user, failed = self._identify_by_certificate(said, peer, believed) if peer.shown else (None, False)
        if user is not None:
            return self._succeed(user, said)
        token = request_header.bearer_token(said.authorization) if said.authorization else b""
        if token:
            digest = self._digest(token)
            owner = self._tokens.find(digest)
            if owner is None:
                return IdentifiedCaller(None, said, self._known.get(digest, ""))
            if owner.user is not None:
                return self._succeed(owner.user, said)
        if token or failed:
            self._failed.inc()
            raise errors.UnauthorizedError
        return self._succeed(ANONYMOUS, said)

    async def identify_by_token(self, said: RequestCredentials, address: str) -> User:
        """Have the token of a caller at `address` reviewed.

        Raises UnauthorizedError, also where there is no answer, and TooManyRequestsError.
        """
        token = request_header.bearer_token(said.authorization)
        digest = self._digest(token)

        async def review() -> _TokenOwner:
            user = await self._reviewer.review_token(token.decode())
            return _TokenOwner(identity.complete_groups(user) if user is not None else None)

        lanes = (EVERYBODY,) if digest in self._known else (_UNKNOWN, ReviewLimit(address, SHARE))
        try:
            owner = await self._tokens.ask(digest, review, lanes=lanes)
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
        """Return what the certificate that a peer showed makes of it now; the peer keeps that as its verdict."""
        return self._verdict_on(peer, self._store.current)

    async def close(self) -> None:
        """End the reviews under way."""
        await self._tokens.close()

    def _identify_by_certificate(
        self, said: RequestCredentials, peer: Peer, believed: ClientTrust
    ) -> tuple[User | None, bool]:
        """Return whom a certificate names, for itself or as front proxy for another; and whether it was refused."""
        verdict = self._verdict_on(peer, believed)
        if verdict.is_proxy:
            user = self._reader.user(said.lines)
            if user is not None:
                return user, False
        elif said.lines:
            self._warn(peer, believed, verdict)
        return verdict.user, verdict.failed

    def _verdict_on(self, peer: Peer, believed: ClientTrust) -> PeerVerdict:
        verdict, now = peer.verdict, self._clock.wall()
        if verdict is None or verdict.generation != believed.generation or now >= verdict.until:
            verdict = peer.verdict = self._judge.judge(peer, believed, now)
        return verdict

    def _digest(self, token: bytes) -> bytes:
        digest = self._hmac.copy()  # a third of the time that the standard library's takes to begin anew
        digest.update(token)
        return digest.finalize()

    def _succeed(self, user: User, said: RequestCredentials) -> IdentifiedCaller:
        self._succeeded.inc()
        return IdentifiedCaller(user, said)

    def _warn(self, peer: Peer, believed: ClientTrust, verdict: PeerVerdict) -> None:
        """Say why somebody with a certificate may not speak for others; the first thing to know when aggregation fails."""
        self._not_accepted.inc()
        now, proxy, certificate = self._clock.monotonic(), believed.front_proxy, peer.certificate
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
