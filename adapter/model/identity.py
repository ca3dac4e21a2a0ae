"""The identity of a caller and the verdict of an access review, as plain values.

Mirrors ``k8s.io/apiserver/pkg/authentication``: names, groups and their completion.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
_SERVICE_ACCOUNTS = "system:serviceaccount:"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""The key of `User.extra` that names the credential of the request."""

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
        """Return the caller's part of the spec of a SubjectAccessReview, without empty fields, as in Go."""
        extra = {key: list(values) for key, values in self.extra}
        spec = {"user": self.name, "uid": self.uid, "groups": list(self.groups), "extra": extra}
        return {name: value for name, value in spec.items() if value}

    @functools.cached_property
    def key(self) -> str:
        """Return the canonical JSON of `spec`: equal for equal callers, and for no others."""
        return json.dumps(self.spec, sort_keys=True, separators=(",", ":"))

    @functools.cached_property
    def tenant(self) -> str:
        """What has a share of limits: the user, or the namespace of a ServiceAccount."""
        return self.name.rpartition(":")[0] if self.name.startswith(_SERVICE_ACCOUNTS) else self.name


ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))
"""A caller without credentials."""


class AccessVerdict(msgspec.Struct, frozen=True):
    """The result of an access review. `denied`: no other authorizer may allow it; `reason` may be empty."""

    allowed: bool
    denied: bool = False
    reason: str = ""


def sort_extra(extra: Mapping[str, Iterable[str]]) -> Extra:
    """Return the form of `User.extra`."""
    return tuple(sorted((key, tuple(values)) for key, values in extra.items()))


def complete_groups(user: User) -> User:
    """Add ``system:authenticated`` to the groups of an authenticated user.

    As upstream, a user that has that group or ``system:unauthenticated`` already, and ``system:anonymous``,
    stay as they are.
    """
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
