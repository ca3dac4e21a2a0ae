"""Authentication in upstream's order: front proxy, client certificate, bearer token, else anonymous.

An authenticator that refuses does not keep the next one from succeeding. Credentials that all of them reject
yield 401; they never fall back to anonymous. Tokens are kept as keyed digests only, and are sent nowhere but
into a token review.

The front proxy is kube-apiserver's aggregator, which sends the name of its caller in request headers. Those
headers are trusted only on a connection whose client certificate leads to the front proxy's authority and has
one of the allowed names (`client_cert`). On any other connection they mean nothing, whatever else the caller
is.

Headers are read as upstream does: names in any case, each line one value, never split at commas; the first
line of a name header counts and every line of a group header. Credentials never reach handlers, backends or
logs.
"""

import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from cachetools import LRUCache
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from adapter import errors
from adapter.model import identity
from adapter.model.clock import Clock
from adapter.model.identity import ANONYMOUS, User
from adapter.server.auth import client_cert
from adapter.server.auth.client_cert import HeaderNames, Peer, PeerJudge, PeerVerdict
from adapter.server.auth.review_cache import ALL_REVIEWS, SHARE, ReviewCache, ReviewLimit
from adapter.server.auth.trust_store import TrustStore
from adapter.telemetry import logs
from adapter.telemetry.metrics import BoundedCache, Monitoring

log = logging.getLogger(__name__)

_SAY_AGAIN = 60.0
"""Seconds between two warnings about front proxies that are not accepted."""

_NO_NAMES = HeaderNames((), (), (), ())

UNKNOWN = ReviewLimit("unknown tokens", 200)
"""Limit on reviews of tokens never accepted before, which anyone can make up; known tokens do not wait for
them."""

_KNOWN_TOKENS = 8192

Line = tuple[str, bytes]
"""A header's name in lower case and its value as it came."""

_NAMES_KEPT = 1024
_LONGEST_NAME = 128
USERS_KEPT = 4096
LARGEST_USER = 10_000

_IMPERSONATE = "impersonate-"
_ESCAPE_CUT_SHORT = re.compile(r"%(?![0-9a-f]{2})")


class RequestCredentials(NamedTuple):
    """The lines that may name a proxied caller, the Authorization, and whether to impersonate."""

    lines: tuple[Line, ...]
    authorization: bytes
    impersonates: bool


class HeaderReader:
    """Reads headers under one set of `names`. Caches the class of header names, and the users of lines."""

    def __init__(self, names: HeaderNames, monitoring: Monitoring) -> None:
        self._names = names
        self._wanted = frozenset((*names.username, *names.uid, *names.group))
        self._prefixes = names.extra_prefix
        # raw name -> lower-case name where it means something here, "" where it does not
        self._classed: dict[bytes, str] = {}
        self._users: BoundedCache[tuple[Line, ...], User | None] = BoundedCache(
            "users", monitoring, USERS_KEPT
        )

    def read(self, headers: Iterable[tuple[bytes, bytes]]) -> RequestCredentials:
        """Return the credentials of a request. Raises BadRequestError for a value that is not UTF-8."""
        lines: list[Line] = []
        authorization: bytes | None = None
        impersonates = False
        classed = self._classed
        for raw, value in headers:
            name = classed.get(raw)
            if name is None:
                name = self._class(raw)
            if not value.isascii():
                try:
                    value.decode()
                except UnicodeDecodeError as error:
                    raise errors.BadRequestError("a header of the request is not UTF-8 text") from error
            if not name:
                continue
            if name == "authorization":
                authorization = value if authorization is None else authorization
            elif name.startswith(_IMPERSONATE):
                impersonates = True
            else:
                lines.append((name, value))
        return RequestCredentials(tuple(lines), authorization or b"", impersonates)

    def user(self, lines: tuple[Line, ...]) -> User | None:
        """Return the user that a front proxy names, None where it names none."""
        try:
            return self._users[lines]
        except KeyError:
            user = self._build_user(lines)
        if sum(len(name) + len(value) for name, value in lines) <= LARGEST_USER:
            self._users[lines] = user
        return user

    def _class(self, raw: bytes) -> str:
        """Return the name in lower case if it is that of a credential, else ""."""
        name = raw.decode("latin-1").lower()
        if (
            name != "authorization"
            and not name.startswith((_IMPERSONATE, *self._prefixes))
            and name not in self._wanted
        ):
            name = ""
        if len(raw) <= _LONGEST_NAME:
            if len(self._classed) >= _NAMES_KEPT:  # a client makes up names
                self._classed.clear()
            self._classed[raw] = name
        return name

    def _build_user(self, lines: tuple[Line, ...]) -> User | None:
        values: dict[str, list[str]] = {}
        for name, value in lines:
            values.setdefault(name, []).append(value.decode())
        username = _first(self._names.username, values)
        if not username:
            return None
        groups = [group for name in self._names.group for group in values.get(name, ()) if group]
        extra: dict[str, list[str]] = {}
        for prefix in self._prefixes:
            for name, texts in values.items():
                if name.startswith(prefix):
                    extra.setdefault(_unescape(name[len(prefix) :]), []).extend(texts)
        uid = _first(self._names.uid, values)
        return identity.complete_groups(User(username, uid, tuple(groups), identity.sort_extra(extra)))


def bearer_token(authorization: bytes) -> bytes:
    """Return the token of an Authorization header, b"" when it holds none; the scheme is read in any case."""
    scheme, _, rest = authorization.strip().partition(b" ")
    return rest.partition(b" ")[0] if scheme.lower() == b"bearer" else b""


def _first(names: Iterable[str], values: dict[str, list[str]]) -> str:
    return next((values[name][0] for name in names if values.get(name, [""])[0]), "")


def _unescape(key: str) -> str:
    """Decode the key of an extra header; one that does not decode stays as it is written."""
    try:
        return key if _ESCAPE_CUT_SHORT.search(key) else unquote_to_bytes(key).decode()
    except UnicodeDecodeError:
        return key


class _TokenOwner(NamedTuple):
    """The result of a token review; None for an invalid token."""

    user: User | None


class Authenticator:
    """Identifies callers. `token_ttl` is how many seconds the review of a token is used.

    `review_token` returns the user of a token, None for an invalid one. It raises KubernetesError if there is
    no answer.
    """

    def __init__(
        self,
        store: TrustStore,
        review_token: Callable[[str], Awaitable[User | None]],
        clock: Clock,
        own_metrics: Monitoring,
        *,
        token_ttl: float = 10.0,
    ) -> None:
        self._store = store
        self._review_token = review_token
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
        self._reader = HeaderReader(_NO_NAMES, own_metrics)
        self._warned: float | None = None
        self._not_accepted = own_metrics.faults.labels("front-proxy")
        attempts = own_metrics.authentication_attempts
        self._succeeded, self._failed = attempts.labels("success"), attempts.labels("error")

    def identify_now(
        self, headers: Iterable[tuple[bytes, bytes]], peer: Peer
    ) -> tuple[User | None, RequestCredentials, str]:
        """Return the caller, None while its token has to be reviewed, and the credentials of its headers.

        The third is the user's name from the last review of the token, "" where it has not been accepted.
        Raises UnauthorizedError, and BadRequestError for bad headers.
        """
        trust = self._store.current
        if trust.generation != self._generation:
            self._generation = trust.generation
            names = trust.front_proxy.headers if trust.front_proxy else _NO_NAMES
            self._reader = HeaderReader(names, self._monitoring)
        credentials = self._reader.read(headers)
        user, failed = self._identify_by_certificate(credentials, peer) if peer.shown else (None, False)
        if user is None:
            token = bearer_token(credentials.authorization) if credentials.authorization else b""
            if token:
                digest = self._digest(token)
                owner = self._tokens.find(digest)
                if owner is None:
                    return None, credentials, self._known.get(digest, "")
                user = owner.user
            if user is None:
                if token or failed:
                    self._failed.inc()
                    raise errors.UnauthorizedError
                user = ANONYMOUS
        self._succeeded.inc()
        return user, credentials, ""

    async def identify_by_token(self, credentials: RequestCredentials, address: str) -> User:
        """Have the token of a caller at `address` reviewed.

        Raises UnauthorizedError, also where there is no answer, and TooManyRequestsError.
        """
        token = bearer_token(credentials.authorization)
        digest = self._digest(token)

        async def review() -> _TokenOwner:
            user = await self._review_token(token.decode())
            return _TokenOwner(identity.complete_groups(user) if user is not None else None)

        limits = (ALL_REVIEWS,) if digest in self._known else (UNKNOWN, ReviewLimit(address, SHARE))
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
        trust, verdict, now = self._store.current, peer.verdict, self._clock.wall()
        if verdict is None or verdict.generation != trust.generation or now >= verdict.until:
            verdict = peer.verdict = self._judge.judge(peer, trust, now)
        return verdict

    async def close(self) -> None:
        await self._tokens.close()

    def _identify_by_certificate(
        self, credentials: RequestCredentials, peer: Peer
    ) -> tuple[User | None, bool]:
        """Return the user that a certificate names or is front proxy for, and whether it was refused."""
        verdict = self.judge(peer)
        if verdict.is_proxy:
            user = self._reader.user(credentials.lines)
            if user is not None:
                return user, False
        elif credentials.lines:
            self._warn(peer, verdict)
        return verdict.user, verdict.failed

    def _digest(self, token: bytes) -> bytes:
        digest = self._hmac.copy()  # a third of the time of a new HMAC of the standard library
        digest.update(token)
        return digest.finalize()

    def _warn(self, peer: Peer, verdict: PeerVerdict) -> None:
        """Log why a client certificate is not a front proxy's: the first question when aggregation fails."""
        self._not_accepted.inc()
        now, certificate = self._clock.monotonic(), peer.certificate
        if self._warned is not None and now - self._warned < _SAY_AGAIN:
            return
        self._warned = now
        proxy = self._store.current.front_proxy
        facts = logs.facts(
            name=client_cert.common_name(certificate) if certificate else "",
            expected=", ".join(proxy.allowed_names) or "any" if proxy else "",
            issuer=certificate.issuer.rfc4514_string() if certificate else "",
            authorities="; ".join(proxy.bundle.subjects) if proxy else "",
            reason=verdict.refused,
        )
        log.warning("a client certificate with request headers is not accepted as front proxy", extra=facts)
