"""The Authorization header of requests to Prometheus and to pods.

A token or password file is read again when it changes, because Kubernetes rotates tokens under the same path.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from adapter.errors import Fault, InputError
from adapter.kubernetes.credentials import ClientConfiguration
from adapter.model.clock import Clock
from adapter.telemetry.problems import ProblemLog

FILE_CHECK_SECONDS = 1.0
"""How often, at most, a token or password file is checked for changes."""


class Authorization(Protocol):
    """A source of the Authorization header."""

    async def header(self) -> str:
        """Return the header's value now; "" for no header."""
        ...

    def refuse(self) -> None:
        """Note that the server refused the last value with 401."""
        ...


class FixedAuthorization:
    """A constant value."""

    def __init__(self, value: str = "") -> None:
        self._value = value

    async def header(self) -> str:
        return self._value

    def refuse(self) -> None:
        """Do nothing: there is no other value."""


class FileAuthorization:
    """A value rendered from a file.

    The file is checked for changes (time, size or inode: Kubernetes swaps links) once a second at most, and
    at the next request after a refusal. If it cannot be read, the last value stays in use, as in client-go.
    """

    def __init__(
        self,
        path: str,
        render: Callable[[str], str],
        flag: str,
        clock: Clock,
        faults: ProblemLog,
        *,
        receiver: str = "Prometheus",
    ) -> None:
        """`flag` and `receiver` are for messages. `render` raises ValueError with the text that it expected.

        Raises InputError if the file cannot be read now.
        """
        self._receiver = receiver
        self._path = Path(path)
        self._render = render
        self._flag = flag
        self._clock = clock
        self._faults = faults
        self._identity: tuple[int, int, int] | None = None
        self._value = ""
        self._next_check = 0.0
        try:
            self._read()
        except (OSError, ValueError) as error:
            expected = f"a readable file ({error.strerror})" if isinstance(error, OSError) else str(error)
            raise InputError([Fault(path=flag, value=path, expected=expected)]) from error
        self._next_check = clock.monotonic() + FILE_CHECK_SECONDS

    async def header(self) -> str:
        now = self._clock.monotonic()
        if now >= self._next_check:
            self._next_check = now + FILE_CHECK_SECONDS
            try:
                self._read()
            except (OSError, ValueError) as error:
                message = f"credentials for {self._receiver} cannot be read again; the old ones stay"
                self._faults.report("credentials", message, str(error), subject=self._flag)
            else:
                self._faults.resolve("credentials", subject=self._flag)
        return self._value

    def refuse(self) -> None:
        """Check the file at the next request."""
        self._next_check = 0.0

    def _read(self) -> None:
        # a few hundred bytes of a local file, usually in memory: not worth a thread
        status = self._path.stat()
        identity = (status.st_mtime_ns, status.st_ino, status.st_size)
        if identity != self._identity:
            self._value = self._render(self._path.read_text(encoding="utf-8").strip())
            self._identity = identity


class KubeconfigAuthorization:
    """The credentials of a kubeconfig's user, which are renewed at intervals of their own."""

    def __init__(self, configuration: ClientConfiguration) -> None:
        self._authorization = configuration.authorization

    async def header(self) -> str:
        return await self._authorization()

    def refuse(self) -> None:
        """Do nothing: a refused token is renewed when it is due."""


def render_bearer(text: str) -> str:
    """Return the header's value for a token. Raises ValueError that says what is expected."""
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError("a file that holds a token, one line of printable characters")
    return f"Bearer {text}"


def render_basic(text: str) -> str:
    """Return the header's value for ``user:password``. Raises ValueError that says what is expected."""
    if ":" not in text or not text.isprintable():
        raise ValueError("a file that holds one line, user:password")
    return "Basic " + base64.b64encode(text.encode()).decode()
