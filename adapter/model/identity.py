"""Who asks, and what a review says: plain values between authentication, authorization and the API server's reviews.

Not here: how a caller proves who it is (`server.auth.authentication`), and what it may do (`server.auth.authorization`). The law is
``k8s.io/apiserver/pkg/authentication``: names, groups and their completion.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""The key under `User.extra` that names the credential which was shown."""

Extra = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class User:
    """A caller. `extra` is sorted by its keys; `groups` keep their order."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Extra = ()

    @functools.cached_property
    def spec(self) -> dict[str, object]:
        """Return the caller's part of a SubjectAccessReview's spec; what is empty is left out, as Go does."""
        extra = {key: list(values) for key, values in self.extra}
        spec = {"user": self.name, "uid": self.uid, "groups": list(self.groups), "extra": extra}
        return {name: value for name, value in spec.items() if value}

    @functools.cached_property
    def key(self) -> str:
        """Return the canonical JSON of `spec`: equal for equal callers, and for no others."""
        return json.dumps(self.spec, sort_keys=True, separators=(",", ":"))


ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))
"""Who shows no credentials at all."""


class AccessVerdict(NamedTuple):
    """What an access review says. `denied` means that nobody else may allow it either; `reason` may be empty."""

    allowed: bool
    denied: bool = False
    reason: str = ""


def sort_extra(extra: Mapping[str, Iterable[str]]) -> Extra:
    """Return the form of `User.extra`."""
    return tuple(sorted((key, tuple(values)) for key, values in extra.items()))


def complete_groups(user: User) -> User:
    """Add ``system:authenticated`` to whom an authenticator has named.

    As upstream, not where that group or ``system:unauthenticated`` is there already, and not for ``system:anonymous``.
    """
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
