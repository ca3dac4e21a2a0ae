"""TLS towards Prometheus: the context of new connections, built again when one of its files changes.

An `ssl.SSLContext` cannot give up what it once loaded, so a change means a new context. The HTTP client keeps idle connections
by context: after a change it opens new ones, while queries under way end on theirs.
"""

import contextlib
import ssl
from pathlib import Path

from adapter.errors import Fault, InputError
from adapter.model.clock import Clock
from adapter.prometheus.endpoint import Trust
from adapter.telemetry.problems import ProblemLog

CHECK_SECONDS = 1.0
"""How often, at most, the files are looked at."""

_SUBJECT = "prometheus-tls"

# Time, inode and size of each file: Kubernetes swaps a link, editors replace or rewrite.
_Identity = tuple[tuple[int, int, int], ...]


class FollowedTLS:
    """The context for a `Trust`. Files that cannot be used, such as half-written ones, leave the last context in force.

    That is said once. The files are looked at again a second later, and so until they can be used.
    """

    def __init__(self, trust: Trust, clock: Clock, faults: ProblemLog) -> None:
        """Read the files; raises `InputError` for files that cannot be used."""
        self._trust = trust
        self._clock = clock
        self._faults = faults
        self._paths = tuple(Path(name) for name in (trust.ca_file, trust.cert_file, trust.key_file) if name)
        self._look_again = clock.monotonic() + CHECK_SECONDS
        self._identity: _Identity | None = None
        with contextlib.suppress(OSError):  # building the context names the file
            self._identity = self._look()
        self._context = build(trust)

    def context(self) -> ssl.SSLContext:
        """Return the context of the files as they are now, or were up to a second ago."""
        now = self._clock.monotonic()
        if self._paths and now >= self._look_again:
            self._look_again = now + CHECK_SECONDS
            self._follow()
        return self._context

    def _follow(self) -> None:
        # a few small local files, read only when they changed: not worth a thread
        try:
            identity = self._look()  # before reading: what changes meanwhile is read at the next look
            if identity != self._identity:
                self._context = build(self._trust)
                self._identity = identity
        except (OSError, InputError) as error:
            message = "TLS files for Prometheus cannot be read again; the old ones stay"
            self._faults.report("credentials", message, str(error), subject=_SUBJECT)
        else:
            self._faults.resolve("credentials", subject=_SUBJECT)

    def _look(self) -> _Identity:
        return tuple(
            (status.st_mtime_ns, status.st_ino, status.st_size) for status in map(Path.stat, self._paths)
        )


def build(trust: Trust) -> ssl.SSLContext:
    """Return the client's TLS context; raises `InputError` for files that are not what they should be."""
    try:
        context = ssl.create_default_context(cafile=trust.ca_file or None)
    except OSError as error:  # SSLError is one
        raise _refuse(
            "--prometheus-ca-file", trust.ca_file, f"a file of PEM certificates ({_reason(error)})"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go does not ask for it, and private CAs do not meet it
    if not trust.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if trust.cert_file:
        try:
            # an empty password: for an encrypted key OpenSSL would ask the terminal, and the event loop would wait
            context.load_cert_chain(trust.cert_file, trust.key_file, password="")
        except OSError as error:
            expected = f"a PEM certificate and its key in {trust.key_file} ({_reason(error)})"
            raise _refuse("--prometheus-client-tls-cert-file", trust.cert_file, expected) from error
    return context


def _reason(error: OSError) -> str:
    return (error.strerror or str(error))[:200]


def _refuse(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(path=flag, value=value, expected=expected)])
