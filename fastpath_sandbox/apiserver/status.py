"""Refusals as Status objects, in the words of the API machinery.

Code, reason, message and details are those of a real API server, so that clients are tested against what they
meet in production. Where the sandbox lacks a feature, the message begins with "sandbox:" and says what to do
instead.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from fastpath_sandbox.apiserver.kinds import Kind

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class StatusFailure(Exception):  # noqa: N818 - the API calls it a Status whose status is Failure
    """A refused request; `document` is the Status object to send."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        self.code = code
        self.message = message
        self.document: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        } | _present(details=details)
        super().__init__(message)

    def encode(self) -> bytes:
        return msgspec.json.encode(self.document)


def _details(kind: Kind, name: str) -> dict[str, Any]:
    return _present(name=name, group=kind.group, kind=kind.plural)


def _present(**fields: Any) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value}


def bad_request(message: str) -> StatusFailure:
    return StatusFailure(400, "BadRequest", message)


def wrong_name(given: str, name: str) -> StatusFailure:
    return bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def unauthorized() -> StatusFailure:
    """401: no token, or an unknown one."""
    return StatusFailure(401, "Unauthorized", "Unauthorized")


def forbidden(
    user: str, verb: str, kind: Kind, subresource: str, *, namespace: str, name: str
) -> StatusFailure:
    """403 of the RBAC authorizer."""
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    subject = f'{kind.qualified} "{name}" is forbidden' if name else f"{kind.qualified} is forbidden"
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = (
        f'{subject}: User "{user}" cannot {verb} resource "{resource}" in API group "{kind.group}" {scope}'
    )
    return StatusFailure(403, "Forbidden", message, _details(kind, name))


def not_found(kind: Kind, name: str) -> StatusFailure:
    """404: the kind is served, but the object does not exist."""
    return StatusFailure(404, "NotFound", f'{kind.qualified} "{name}" not found', _details(kind, name))


def method_not_allowed() -> StatusFailure:
    """405: the path exists, the method does not."""
    message = "the server does not allow this method on the requested resource"
    return StatusFailure(405, "MethodNotAllowed", message)


def not_acceptable(message: str = "") -> StatusFailure:
    """406: no media type of the Accept header is available."""
    accepted = "only the following media types are accepted: application/json"
    return StatusFailure(406, "NotAcceptable", message or accepted)


def already_exists(kind: Kind, name: str) -> StatusFailure:
    """409: POST of an existing name."""
    return StatusFailure(
        409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', _details(kind, name)
    )


def conflict(kind: Kind, name: str, cause: str = "") -> StatusFailure:
    """409: the write names a version that is not current."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {cause or _MODIFIED}'
    return StatusFailure(409, "Conflict", message, _details(kind, name))


def expired(message: str) -> StatusFailure:
    """410: the version is older than the log."""
    return StatusFailure(410, "Expired", message)


def too_old(version: int, kept: int) -> StatusFailure:
    """410 of a watch that starts before the log."""
    return expired(f"too old resource version: {version} ({kept})")


def continue_expired() -> StatusFailure:
    """410 of a continue token with a forgotten version."""
    return expired(
        "The provided continue parameter is too old to display a consistent list result. "
        "You can start a new list without the continue parameter."
    )


def unsupported_media_type(accepted: Sequence[str]) -> StatusFailure:
    """415: the media type of the body is unknown."""
    types = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {types}"
    return StatusFailure(415, "UnsupportedMediaType", message)


def invalid(
    kind_name: str, group: str, name: str, *, field: str, message: str, reason: str = "FieldValueInvalid"
) -> StatusFailure:
    """422 of one field; `reason` is for programs (FieldValueInvalid), `message` follows the field."""
    qualified = f"{kind_name}.{group}" if group else kind_name
    causes = [{"reason": reason, "message": message, "field": field}]
    details = _present(name=name, group=group, kind=kind_name, causes=causes)
    return StatusFailure(422, "Invalid", f'{qualified} "{name}" is invalid: {field}: {message}', details)


def forbidden_path(user: str, path: str) -> StatusFailure:
    """403: a path without a resource that `user` may not read."""
    return StatusFailure(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"')


def forbidden_option(field: str, cause: str) -> StatusFailure:
    """422 of a query parameter that is not allowed."""
    message, reason = f"Forbidden: {cause}", "FieldValueForbidden"
    return invalid("ListOptions", "meta.k8s.io", "", field=field, message=message, reason=reason)


def no_protobuf() -> StatusFailure:
    """415 where a real API server reads protobuf."""
    message = (
        "sandbox: protobuf is not read: send application/json; "
        "with kubectl use create -f or apply -f instead of a generator"
    )
    return StatusFailure(415, "UnsupportedMediaType", message)


_FAILURES = {
    409: ("Conflict", _MODIFIED),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


def failure(code: int) -> StatusFailure:
    """Return a programmed refusal by its code."""
    reason, message = _FAILURES[code]
    return StatusFailure(code, reason, message)


def too_large_version(version: int, current: int) -> StatusFailure:
    """504: a list at a future version."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusFailure(
        504, "Timeout", f"Timeout: Too large resource version: {version}, current: {current}", details
    )


def not_built(what: str, instead: str) -> StatusFailure:
    """501: a feature of the real API server that the sandbox lacks; `instead` says what to do."""
    return StatusFailure(501, "NotImplemented", f"sandbox: {what} is not implemented: {instead}")
