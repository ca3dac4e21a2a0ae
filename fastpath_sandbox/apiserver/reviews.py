"""Token and access reviews with programmable verdicts.

Each review is recorded as it arrived, before the verdict is computed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.store import JSON, clone


class TokenVerdict(NamedTuple):
    """The user of a token; `authenticated` False rejects the token, with an `error` for the log."""

    authenticated: bool
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    error: str = ""
    extra: dict[str, list[str]] | None = None


class AccessReviewVerdict(NamedTuple):
    """Whether an access is allowed, and why. `denied` True stops other authorizers from allowing it."""

    allowed: bool
    reason: str = ""
    denied: bool = False


def _no_token(spec: JSON) -> TokenVerdict:
    return TokenVerdict(
        authenticated=False,
        error=f"the sandbox knows no token {spec.get('token', '')[:8]!r}: set cluster.reviews.token",
    )


def _everything(_spec: JSON) -> AccessReviewVerdict:
    return AccessReviewVerdict(allowed=True, reason="the sandbox allows all")


class Reviews:
    """The programmed verdicts and the received reviews.

    `token` gets the spec of a TokenReview, `access` that of a SubjectAccessReview or SelfSubjectAccessReview.
    By default no token is known and every access is allowed. `received` holds the documents in order of
    arrival.
    """

    def __init__(self) -> None:
        self.token: Callable[[JSON], TokenVerdict] = _no_token
        self.access: Callable[[JSON], AccessReviewVerdict] = _everything
        self.received: list[JSON] = []

    def answer(self, kind: Kind, given: Any) -> JSON:
        """Return the review with its status."""
        if not isinstance(given, dict) or not isinstance(given.get("spec"), dict):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): it has no spec"
            )
        document: JSON = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}} | clone(given)
        self.received.append(clone(document))
        decide = self._token_status if kind.kind == "TokenReview" else self._access_status
        return document | {"status": decide(document["spec"])}

    def _token_status(self, spec: JSON) -> JSON:
        verdict = self.token(spec)
        if not verdict.authenticated:
            return {"user": {}} | _present(error=verdict.error)
        user = _present(uid=verdict.uid, groups=list(verdict.groups), extra=verdict.extra)
        answer = {"authenticated": True, "user": {"username": verdict.user} | user}
        return answer | _present(audiences=spec.get("audiences"))

    def _access_status(self, spec: JSON) -> JSON:
        verdict = self.access(spec)
        return {"allowed": verdict.allowed} | _present(denied=verdict.denied, reason=verdict.reason)


def _present(**fields: Any) -> JSON:
    """Return the fields that are not empty: as in Go, the others are omitted."""
    return {name: value for name, value in fields.items() if value}
