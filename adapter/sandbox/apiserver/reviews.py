"""Token and access reviews with programmable verdicts.

Each review is recorded as it arrived, before the verdict is computed.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from adapter.sandbox.apiserver import status
from adapter.sandbox.apiserver.kinds import Kind

JSON = dict[str, Any]


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


def _nobody(spec: JSON) -> TokenVerdict:
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
        self.token: Callable[[JSON], TokenVerdict] = _nobody
        self.access: Callable[[JSON], AccessReviewVerdict] = _everything
        self.received: list[JSON] = []

    def answer(self, kind: Kind, given: Any) -> JSON:
        """Return the review with its status."""
        if not isinstance(given, dict) or not isinstance(given.get("spec"), dict):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): it has no spec"
            )
        document: JSON = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}} | copy.deepcopy(
            given
        )
        self.received.append(copy.deepcopy(document))
        spec = document["spec"]
        document["status"] = (
            self._token_status(spec) if kind.kind == "TokenReview" else self._access_status(spec)
        )
        return document

    def _token_status(self, spec: JSON) -> JSON:
        verdict = self.token(spec)
        if not verdict.authenticated:
            return {"user": {}, "error": verdict.error} if verdict.error else {"user": {}}
        user: JSON = {"username": verdict.user}
        if verdict.uid:
            user["uid"] = verdict.uid
        if verdict.groups:
            user["groups"] = list(verdict.groups)
        if verdict.extra:
            user["extra"] = verdict.extra
        answer: JSON = {"authenticated": True, "user": user}
        if spec.get("audiences"):
            answer["audiences"] = spec["audiences"]
        return answer

    def _access_status(self, spec: JSON) -> JSON:
        verdict = self.access(spec)
        answer: JSON = {"allowed": verdict.allowed}
        if verdict.denied:
            answer["denied"] = True
        if verdict.reason:
            answer["reason"] = verdict.reason
        return answer
