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


class Reviews:
    """The programmed verdicts and the received reviews.

    `token` gets the spec of a TokenReview, `access` that of a SubjectAccessReview or SelfSubjectAccessReview.
    By default no token is known and every access is allowed. `received` holds the documents in order of
    arrival.
    """

    def __init__(self) -> None:
        unknown = TokenVerdict(False, error="the sandbox knows no token: set cluster.reviews.token")
        self.token: Callable[[JSON], TokenVerdict] = lambda _: unknown
        allowed = AccessReviewVerdict(True, reason="the sandbox allows all")
        self.access: Callable[[JSON], AccessReviewVerdict] = lambda _: allowed
        self.received: list[JSON] = []

    def answer(self, kind: Kind, given: Any) -> JSON:
        """Return the review with its status."""
        if not isinstance(given, dict) or not isinstance(given.get("spec"), dict):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): it has no spec"
            )
        document: JSON = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}} | clone(given)
        self.received.append(clone(document))
        spec = document["spec"]
        if kind.kind != "TokenReview":
            access = self.access(spec)
            state: JSON = {"allowed": access.allowed} | _present(denied=access.denied, reason=access.reason)
        elif (token := self.token(spec)).authenticated:
            user = {"username": token.user} | _present(
                uid=token.uid, groups=list(token.groups), extra=token.extra
            )
            state = {"authenticated": True, "user": user} | _present(audiences=spec.get("audiences"))
        else:
            state = {"user": {}} | _present(error=token.error)
        return document | {"status": state}


def _present(**fields: Any) -> JSON:
    """Return the fields that are not empty: as in Go, the others are omitted."""
    return {name: value for name, value in fields.items() if value}
