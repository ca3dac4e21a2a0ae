"""Every error of Fastpath, in one tree. Nothing but the sandbox, which shares no code, defines other exceptions.

FastpathError
├── InputError                 what a person gave is wrong: faults with place, value and what was expected; exit status 2
├── RunError                   a command could not do its work; exit status 1
├── TemplateError              a query or label template failed while it was rendered
├── NamingError                a rule has no label for a resource that was asked for
├── UnsupportedSelectorError   a selector requirement that PromQL cannot express
├── NotSeparableError          why the questions of a rule may not be merged; never leaves rules.separable
├── UnscrapableError           why a query cannot be evaluated from the series of one pod; becomes a fault of the rule
├── ExpositionError            a body that a pod shows is not in the exposition format
│   └── ExposureLimitError     a body that a pod shows has more series or longer labels than are kept
├── NotLeadingError           a write that must not be made: the lease may belong to somebody else by now
├── UntrustedError             why a peer's certificate is not believed; never leaves the server package
├── SourceError                a source of values or objects could not be read; never shown to API callers
│   ├── PrometheusError        Prometheus: unreachable, slow, refused, or answered what is not an answer
│   ├── ScrapeError            a pod: unreachable, slow, too much, or not an exposition
│   ├── KubernetesError        the Kubernetes API server: its status and reason
│   └── NotSyncedError         a cache that has not seen its first list yet: "not known", never "not found"
└── StatusError                what an API caller is told: HTTP status, reason, message, details
    ├── BadRequestError        400
    ├── UnauthorizedError      401
    ├── ForbiddenError         403
    ├── NotFoundError          404
    ├── MethodNotAllowedError  405
    ├── NotAcceptableError     406
    ├── RequestTooLargeError   413
    ├── InvalidError           422 with every cause
    ├── TooManyRequestsError   429
    ├── InternalError          500 with reason: "Internal error occurred: ..."
    ├── PlainError             500 without reason, where upstream returns a bare Go error
    ├── UnavailableError       503
    └── TimeoutStatusError     504
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class FastpathError(Exception):
    """Base of all errors raised on purpose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in what a person gave.

    `path` is the place inside the document (``rules[3].name.matches``) or the flag, `value` what stands there (already
    shortened for printing), `expected` one sentence without the final stop, `source` the file, `line` counted from 1, 0 when unknown.
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


class InputError(FastpathError):
    """What a person gave cannot be used; carries every fault found, not only the first."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class RunError(FastpathError):
    """A command understood what was asked and could not do it."""


class TemplateError(FastpathError):
    """A template failed while it was rendered, or rendered to nothing."""


class NamingError(FastpathError):
    """A rule has no label for a resource: neither an override nor a template names one."""


class UnsupportedSelectorError(FastpathError):
    """A requirement that PromQL cannot express (``<``, ``>``); nothing is asked then."""


class NotSeparableError(FastpathError):
    """The first part of a query that does not keep objects apart."""


class UntrustedError(FastpathError):
    """A certificate that no authority vouches for. The text is for logs; callers are told nothing."""


class NotLeadingError(FastpathError):
    """A write was asked for by a process that cannot be sure to hold the lease; nothing was sent."""


class ExpositionError(FastpathError):
    """A body, or the part of it that is read, is not in the exposition format; the sentence names the line."""


class ExposureLimitError(ExpositionError):
    """A body, or what is kept of a pod with it, exceeds a limit; the sentence names the limit."""


class UnscrapableError(FastpathError):
    """The first part of a query that cannot be evaluated from the series of one pod alone."""


class SourceError(FastpathError):
    """A source could not be read. The text is for logs; callers get a generic sentence."""


class PrometheusError(SourceError):
    """Prometheus did not answer a query, or not in a way that can be used.

    `kind` is one of ``unreachable``, ``timeout``, ``status`` (an HTTP status that is not an answer),
    ``query`` (Prometheus refused the query: bad_data, execution), ``decode`` (the body is not the JSON of an
    answer), ``type`` (a result that is neither vector nor scalar; `result_type` says which), ``size`` (larger
    than allowed), ``partial`` (the answer came with a warning), ``busy`` (it was not asked, because too many
    questions wait for it) and ``worker`` (the process that reads series lists ended before its time).

    `url` is what was asked, without user, password and query parameters; "" where the failure is not one of the server. It is
    part of the text, which goes to logs and the command line and never to callers of the API.
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

    `retry_after` is after how many seconds it says to ask again, None where it does not say. `said` is what it wrote itself, "" for
    nothing; `plain` says that this is bare text and no Status. `sent_twice` is of a write: it was sent again when its connection broke, so
    that a conflict may be with itself.
    """

    said = ""
    plain = False
    sent_twice = False

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(message)


class ScrapeError(SourceError):
    """A pod could not be scraped.

    `kind` is one of ``unreachable``, ``timeout``, ``status`` (an answer other than 200; redirects are not followed), ``size``
    (more bytes or lines than allowed), ``decode`` (a body that is not an exposition), ``series`` (more series, or longer labels,
    than are kept of a pod), ``budget`` (the bytes that all pods, or those of a namespace, may take are used up) and
    ``credentials`` (the rule's token or authorities cannot be read).
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class NotSyncedError(SourceError):
    """A cache has not seen its first list yet."""


class StatusError(FastpathError):
    """What an API caller is told, as a Kubernetes Status object."""

    code = 500
    reason = ""

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        self.message = message
        self.details = details
        super().__init__(message)


class BadRequestError(StatusError):
    """400: the request itself is wrong."""

    code = 400
    reason = "BadRequest"


class UnauthorizedError(StatusError):
    """401: credentials that are no good. Always the same text: why is nobody's business but the operator's."""

    code = 401
    reason = "Unauthorized"

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class ForbiddenError(StatusError):
    """403: the caller is known and may not do this."""

    code = 403
    reason = "Forbidden"


class NotFoundError(StatusError):
    """404: no such metric, object or path."""

    code = 404
    reason = "NotFound"


class MethodNotAllowedError(StatusError):
    """405: only GET and HEAD exist."""

    code = 405
    reason = "MethodNotAllowed"


class NotAcceptableError(StatusError):
    """406: the caller does not accept JSON."""

    code = 406
    reason = "NotAcceptable"


class RequestTooLargeError(StatusError):
    """413: a GET with a body worth the name."""

    code = 413
    reason = "RequestEntityTooLarge"


class Cause(NamedTuple):
    """One reason of a refusal: its name in the API, its sentence, the field it is about."""

    reason: str
    message: str
    field: str


class InvalidError(StatusError):
    """422: parameters that are well-formed and may not be so; in the API machinery's form, with all causes."""

    code = 422
    reason = "Invalid"

    def __init__(self, group: str, kind: str, causes: Sequence[Cause]) -> None:
        sentences = [f"{cause.field}: {cause.message}" for cause in causes]
        said = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
        listed = [cause._asdict() for cause in causes]
        super().__init__(
            f'{kind}.{group} "" is invalid: {said}', {"group": group, "kind": kind, "causes": listed}
        )


class TooManyRequestsError(StatusError):
    """429: as much is under way already as may be; the caller may come again in a second.

    `limit` is what there is too much of: ``questions``, ``callers`` (who wait for a review), ``reviews``, ``queries`` or
    ``answers`` (memory of those under way).
    """

    code = 429
    reason = "TooManyRequests"

    def __init__(self, limit: str) -> None:
        self.limit = limit
        super().__init__("Too many requests, please try again later.")


class InternalError(StatusError):
    """500 in the API machinery's form; the cause is a short sentence without query text or addresses."""

    reason = "InternalError"

    def __init__(self, cause: str) -> None:
        super().__init__(f"Internal error occurred: {cause}", {"causes": [{"message": cause}]})


class PlainError(StatusError):
    """500 without a reason: upstream returns a bare Go error here, and scripts compare the text."""


class UnavailableError(StatusError):
    """503: not ready to answer this yet. Never with a Retry-After: client-go would sleep on it."""

    code = 503
    reason = "ServiceUnavailable"


class TimeoutStatusError(StatusError):
    """504: the answer took too long."""

    code = 504
    reason = "Timeout"
