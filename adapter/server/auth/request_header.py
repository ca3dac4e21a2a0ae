"""The credentials in the headers of a request, read from the raw lines in one pass.

Header handling is upstream's: names in any case, each line one value, never split at commas; the first line
of a name header counts and every line of a group header. Whether they are believed is decided in
`authentication`. Nothing that is read here reaches handlers, backends or logs.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from adapter import errors
from adapter.model import identity
from adapter.model.identity import User
from adapter.server.auth.trust import HeaderNames
from adapter.telemetry.caching import BoundedCache
from adapter.telemetry.metrics import Monitoring

Line = tuple[str, bytes]
"""A header's name in lower case and its value as it came."""

_NAMES_KEPT = 1024
_LONGEST_NAME = 128
_USERS_KEPT = 4096
_LARGEST_USER = 10_000

_IMPERSONATE = "impersonate-"
_ESCAPE_CUT_SHORT = re.compile(r"%(?![0-9a-f]{2})")


class RequestCredentials(NamedTuple):
    """The lines that may name a proxied caller, the Authorization, and whether to impersonate."""

    lines: tuple[Line, ...]
    authorization: bytes
    impersonates: bool


class HeaderReader:
    """Reads headers under one set of `names`. Caches the class of header names, and the users of lines."""

    def __init__(self, names: HeaderNames, monitoring: Monitoring | None = None) -> None:
        self._names = names
        self._wanted = frozenset((*names.username, *names.uid, *names.group))
        self._prefixes = names.extra_prefix
        # raw name -> lower-case name where it means something here, "" where it does not
        self._classed: dict[bytes, str] = {}
        self._users: BoundedCache[tuple[Line, ...], User | None] = BoundedCache(
            "users", monitoring, _USERS_KEPT
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
                _check_text(value)
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
            made = self._make(lines)
        if sum(len(name) + len(value) for name, value in lines) <= _LARGEST_USER:
            self._users[lines] = made
        return made

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

    def _make(self, lines: tuple[Line, ...]) -> User | None:
        values: dict[str, list[str]] = {}
        for name, value in lines:
            values.setdefault(name, []).append(value.decode())
        username = _first(self._names.username, values)
        if not username:
            return None
        groups = [group for name in self._names.group for group in values.get(name, ()) if group]
        extra: dict[str, list[str]] = {}
        for prefix in self._prefixes:
            for name, found in values.items():
                if name.startswith(prefix):
                    extra.setdefault(_unescape(name[len(prefix) :]), []).extend(found)
        uid = _first(self._names.uid, values)
        return identity.complete_groups(User(username, uid, tuple(groups), identity.sort_extra(extra)))


def bearer_token(authorization: bytes) -> bytes:
    """Return the token of an Authorization header, b"" when it holds none; the scheme is read in any case."""
    scheme, _, rest = authorization.strip().partition(b" ")
    return rest.partition(b" ")[0] if scheme.lower() == b"bearer" else b""


def _first(names: Iterable[str], values: dict[str, list[str]]) -> str:
    """Return the first value of the first header that has one."""
    return next((values[name][0] for name in names if values.get(name, [""])[0]), "")


def _unescape(key: str) -> str:
    """Decode the key of an extra header; one that does not decode stays as it is written."""
    try:
        return key if _ESCAPE_CUT_SHORT.search(key) else unquote_to_bytes(key).decode()
    except UnicodeDecodeError:
        return key


def _check_text(value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise errors.BadRequestError("a header of the request is not UTF-8 text") from error
