"""Every error of Fastpath, in one tree. Only the sandbox, which shares no code, has exceptions of its own.

FastpathError
├── InputError                 user input is wrong: faults with place, value and expectation; exit status 2
├── RunError                   a command could not do its work; exit status 1
├── TemplateError              a query or label template failed to render
├── NamingError                a rule has no label for a requested resource
├── UnsupportedSelectorError   a selector requirement that PromQL cannot express
├── NotSeparableError          why the queries of a rule may not be merged
├── UnscrapableError           why scraped series cannot answer a query; becomes a fault of the rule
├── UnionError                 why the scraped series as they are now give a query no answer
├── ExpositionError            the body that a pod serves is not in the exposition format
│   └── ExposureLimitError     the body that a pod serves has too many series or too long labels
├── NotLeadingError            a write that must not be sent: another process may hold the lease
├── UntrustedError             why a peer's certificate is not trusted; internal to the server package
├── SourceError                a source of values or objects could not be read; never shown to API callers
│   ├── PrometheusError        Prometheus: unreachable, slow, refused, or sent an invalid response
│   ├── ScrapeError            a pod: unreachable, slow, too large, or not an exposition
│   ├── KubernetesError        the Kubernetes API server: its status and reason
│   └── NotSyncedError         a cache without its first list: "not known", never "not found"
└── StatusError                the response to an API caller: HTTP status, reason, message, details
    ├── BadRequestError        400: the request itself is wrong
    ├── UnauthorizedError      401: invalid credentials
    ├── ForbiddenError         403: the caller is known and may not do this
    ├── NotFoundError          404: no such metric, object or path
    ├── MethodNotAllowedError  405: only GET and HEAD exist
    ├── NotAcceptableError     406: the caller does not accept JSON
    ├── RequestTooLargeError   413: a GET with a body
    ├── InvalidError           422: well-formed but invalid parameters, with every cause
    ├── TooManyRequestsError   429: a concurrency limit is reached; the caller may retry in a second
    ├── InternalError          500 with reason: "Internal error occurred: ..."
    ├── PlainError             500 without reason, where upstream returns a bare Go error
    ├── UnavailableError       503: not ready to answer yet
    └── TimeoutStatusError     504: the response took too long
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class FastpathError(Exception):
    """Base of all errors raised on purpose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake in user input.

    `path` is the place inside the document (``rules[3].name.matches``) or the flag, `value` the text there
    (already shortened for printing), `expected` one sentence without the final stop, `source` the file, and
    `line` counts from 1, 0 if unknown.
    """

    path: str
    value: str
    expected: str
    source: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return one line: file, line, path, value, what was expected."""
        place = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(part for part in (place, self.path, self.value, self.expected) if part)


def in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults in the order of files, which is that of their first faults, and of lines."""
    every = tuple(faults)
    files = list(dict.fromkeys(fault.source for fault in every))
    return tuple(sorted(every, key=lambda fault: (files.index(fault.source), fault.line)))


class InputError(FastpathError):
    """User input cannot be used; carries all faults, not only the first."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class RunError(FastpathError):
    """A command with valid input could not do its work."""


class TemplateError(FastpathError):
    """A template failed while it was rendered, or rendered to nothing."""


class NamingError(FastpathError):
    """A rule has no label for a resource: neither an override nor a template names one."""


class UnsupportedSelectorError(FastpathError):
    """A requirement that PromQL cannot express (``<``, ``>``); no query is sent."""


class NotSeparableError(FastpathError):
    """The first part of a query that does not keep objects apart."""


class UntrustedError(FastpathError):
    """A certificate that no trusted authority signed. The text is for logs and is never sent to callers."""


class NotLeadingError(FastpathError):
    """The process cannot be sure to hold the lease, so the write was not sent."""


class ExpositionError(FastpathError):
    """The part of a body that is read is not in the exposition format; the sentence names the line."""


class ExposureLimitError(ExpositionError):
    """A body, or the memory of a pod with it, exceeds a limit; the sentence names the limit."""


class UnscrapableError(FastpathError):
    """The first part of a query that cannot be evaluated from scraped series alone."""


class UnionError(FastpathError):
    """Why a query has no answer for the series as they are now, as PromQL says it."""


class SourceError(FastpathError):
    """A source could not be read. The text is for logs; callers get a generic sentence."""


class PrometheusError(SourceError):
    """Prometheus did not answer a query, or its response cannot be used.

    `kind` is one of ``unreachable``, ``timeout``, ``status`` (an HTTP status that is not an answer),
    ``query`` (Prometheus refused the query: bad_data, execution), ``decode`` (the body is not the JSON of an
    answer), ``type`` (a result that is neither vector nor scalar; `result_type` says which), ``size`` (larger
    than allowed), ``partial`` (the answer came with a warning), ``busy`` (the query was not
    sent, because too many are pending) and ``worker`` (the process that reads series lists ended early).

    `url` is the URL of the request without user, password and query parameters, "" if the server did not
    cause the failure. It is part of the text, which goes to logs and the command line and never to callers of
    the API.
    """

    def __init__(self, kind: str, message: str, result_type: str = "", url: str = "") -> None:
        self.kind = kind
        self.message = message
        self.result_type = result_type
        self.url = url
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.url}: {self.message}" if self.url else self.message


class KubernetesError(SourceError):
    """The Kubernetes API server refused or could not be reached (`status` 0).

    `retry_after` is its Retry-After header in seconds, None without one. `said` is the message of its
    response, "" without one; `plain` marks a message that is bare text instead of a Status. `sent_twice`
    marks a write that was sent again because its connection broke: a conflict may be with itself.
    """

    said = ""
    plain = False
    sent_twice = False

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(message)

    @property
    def is_refusal(self) -> bool:
        """Whether the same request would be refused again; not so if it came too late (410) or too often."""
        return 400 <= self.status < 500 and self.status not in {410, 429}


class ScrapeError(SourceError):
    """A pod could not be scraped.

    `kind` is one of ``unreachable``, ``timeout``, ``status`` (a status other than 200; redirects are not
    followed), ``size`` (more bytes or lines than allowed), ``decode`` (a body that is not an exposition),
    ``series`` (more series, or longer labels, than a pod may have), ``budget`` (the pods of all namespaces,
    or of one, take more memory than allowed) and ``credentials`` (the rule's token or authorities cannot be
    read).
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class NotSyncedError(SourceError):
    """A cache has not seen its first list yet."""


class StatusError(FastpathError):
    """The response to an API caller, as a Kubernetes Status object."""

    code = 500
    reason = ""

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        self.message = message
        self.details = details
        super().__init__(message)


class BadRequestError(StatusError):
    code = 400
    reason = "BadRequest"


class UnauthorizedError(StatusError):
    """The text never says why; the log does."""

    code = 401
    reason = "Unauthorized"

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class ForbiddenError(StatusError):
    code = 403
    reason = "Forbidden"


class NotFoundError(StatusError):
    code = 404
    reason = "NotFound"


class MethodNotAllowedError(StatusError):
    code = 405
    reason = "MethodNotAllowed"


class NotAcceptableError(StatusError):
    code = 406
    reason = "NotAcceptable"


class RequestTooLargeError(StatusError):
    code = 413
    reason = "RequestEntityTooLarge"


class Cause(NamedTuple):
    """One reason of a refusal: its name in the API, its sentence, the field it is about."""

    reason: str
    message: str
    field: str


class InvalidError(StatusError):
    """The message is in the API machinery's form, with all causes."""

    code = 422
    reason = "Invalid"

    def __init__(self, group: str, kind: str, causes: Sequence[Cause]) -> None:
        sentences = [f"{cause.field}: {cause.message}" for cause in causes]
        message = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
        listed = [cause._asdict() for cause in causes]
        super().__init__(
            f'{kind}.{group} "" is invalid: {message}', {"group": group, "kind": kind, "causes": listed}
        )


class TooManyRequestsError(StatusError):
    """`limit` names the limit, as the self-metric of refused requests does."""

    code = 429
    reason = "TooManyRequests"

    def __init__(self, limit: str) -> None:
        self.limit = limit
        super().__init__("Too many requests, please try again later.")


class InternalError(StatusError):
    """`cause` is a short sentence without query text or addresses."""

    reason = "InternalError"

    def __init__(self, cause: str) -> None:
        super().__init__(f"Internal error occurred: {cause}", {"causes": [{"message": cause}]})


class PlainError(StatusError):
    """500 without a reason: upstream returns a bare Go error here, and scripts compare the text."""


class UnavailableError(StatusError):
    """Never with a Retry-After, because client-go would wait that long."""

    code = 503
    reason = "ServiceUnavailable"


class TimeoutStatusError(StatusError):
    code = 504
    reason = "Timeout"
