"""TLS towards Prometheus: the context of new connections, built again when one of its files changes.

An `ssl.SSLContext` cannot unload what it has loaded, so a change means a new context. The HTTP client keeps
idle connections by context: after a change it opens new ones, while queries in flight end on theirs.
"""

import contextlib
import ssl
from pathlib import Path

from adapter.errors import Fault, InputError
from adapter.model.clock import Clock
from adapter.prometheus.endpoint import TLSFiles
from adapter.telemetry.problems import ProblemLog

CHECK_SECONDS = 1.0
"""How often, at most, the files are checked for changes."""

_SUBJECT = "prometheus-tls"

# Time, inode and size of each file: Kubernetes swaps a link, editors replace or rewrite.
_Identity = tuple[tuple[int, int, int], ...]


class FollowedTLS:
    """The context for some `TLSFiles`.

    Files that cannot be used, such as half-written ones, leave the last context in use. That is reported
    once, and the files are checked every second until they can be used.
    """

    def __init__(self, files: TLSFiles, clock: Clock, faults: ProblemLog) -> None:
        """Read the files. Raises InputError for files that cannot be used."""
        self._files = files
        self._clock = clock
        self._faults = faults
        self._paths = tuple(Path(name) for name in (files.ca_file, files.cert_file, files.key_file) if name)
        self._next_check = clock.monotonic() + CHECK_SECONDS
        self._identity: _Identity | None = None
        with contextlib.suppress(OSError):  # building the context names the file
            self._identity = self._identify()
        self._context = build(files)

    def context(self) -> ssl.SSLContext:
        """Return the context of the files as of now or of a second ago."""
        now = self._clock.monotonic()
        if self._paths and now >= self._next_check:
            self._next_check = now + CHECK_SECONDS
            self._reload()
        return self._context

    def _reload(self) -> None:
        # a few small local files, read only when they changed: not worth a thread
        try:
            identity = self._identify()  # before reading: a change in between is found by the next check
            if identity != self._identity:
                self._context = build(self._files)
                self._identity = identity
        except (OSError, InputError) as error:
            message = "TLS files for Prometheus cannot be read again; the old ones stay"
            self._faults.report("credentials", message, str(error), subject=_SUBJECT)
        else:
            self._faults.resolve("credentials", subject=_SUBJECT)

    def _identify(self) -> _Identity:
        return tuple(
            (status.st_mtime_ns, status.st_ino, status.st_size) for status in map(Path.stat, self._paths)
        )


def build(files: TLSFiles) -> ssl.SSLContext:
    """Return the client's TLS context. Raises InputError for files that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=files.ca_file or None)
    except OSError as error:  # SSLError is one
        raise _refuse(
            "--prometheus-ca-file", files.ca_file, f"a file of PEM certificates ({_reason(error)})"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go does not require it, and private CAs do not meet it
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.cert_file:
        try:
            # for an encrypted key without a password OpenSSL would block the event loop with a prompt
            context.load_cert_chain(files.cert_file, files.key_file, password="")
        except OSError as error:
            expected = f"a PEM certificate and its key in {files.key_file} ({_reason(error)})"
            raise _refuse("--prometheus-client-tls-cert-file", files.cert_file, expected) from error
    return context


def _reason(error: OSError) -> str:
    return (error.strerror or str(error))[:200]


def _refuse(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(path=flag, value=value, expected=expected)])
