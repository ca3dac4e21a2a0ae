"""Paths of the metrics APIs: from a raw request target to the metrics that its path names.

The raw path is split at its slashes first, and each segment is decoded exactly once. Authorization takes the
same `MetricRequest` that the answer is made from, so a review can never be about other values than those
served.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from adapter import errors

CUSTOM_GROUP = "custom.metrics.k8s.io"
EXTERNAL_GROUP = "external.metrics.k8s.io"
RESOURCE_GROUP = "metrics.k8s.io"
VERSIONS: Mapping[str, tuple[str, ...]] = {
    CUSTOM_GROUP: ("v1beta2", "v1beta1"),
    EXTERNAL_GROUP: ("v1beta1",),
    RESOURCE_GROUP: ("v1", "v1beta1"),
}
"""The versions of each group, the preferred one first: the manifests give it the higher priority."""

# Last: a client that takes the first version must not depend on one that may still change.
PREVIEW_VERSIONS: Mapping[str, tuple[str, ...]] = {
    **VERSIONS,
    CUSTOM_GROUP: (*VERSIONS[CUSTOM_GROUP], "v1"),
    EXTERNAL_GROUP: (*VERSIONS[EXTERNAL_GROUP], "v1"),
}
"""`VERSIONS` and those that Kubernetes has announced but not settled, for --serve-v1-preview."""

WILDCARD = "*"

_MOST_PARAMETERS, _MOST_SEGMENTS = 1000, 100
_LONGEST_PATH = 16 * 1024  # parsed before the caller is known; no name in Kubernetes is nearly as long
_ESCAPE_CUT_SHORT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Parts of a namespace in Kubernetes' own API; every API server reads them as such.
_NAMESPACE_PARTS = frozenset({"status", "finalize"})
# Words before a path that once meant a verb; the rest is too short for a metric.
_OLD_VERBS = frozenset({"watch", "proxy"})

_Form = Literal["object", "namespace", "external", "resource"]


class MetricRequest(NamedTuple):
    """A request for metrics: the decoded parts of its path.

    `form` is ``object`` (R/NAME/M, in a namespace or at the root), ``namespace`` (``namespaces/N/metrics/M``:
    `resource` is ``namespaces``, `namespace` None, `name` the namespace described), ``external`` (`resource`
    "") or ``resource`` (pods and nodes of ``metrics.k8s.io``: `metric` ""). `name` is None for the wildcard,
    for external metrics, and for lists of resource metrics.
    """

    form: _Form
    group: str
    version: str
    namespace: str | None
    resource: str
    name: str | None
    metric: str


def split_target(target: str) -> tuple[str, str]:
    """Return raw path and raw query of a request target, which may be in absolute form.

    Raises BadRequestError, also for a query of too many parts.
    """
    if not target.isascii():
        raise _invalid_path()
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        scheme, separator, rest = path.partition("://")
        if not separator or scheme.lower() not in {"http", "https"}:
            raise _invalid_path()
        _, slash, below = rest.partition("/")
        path = slash + below or "/"
    if query.count("&") > _MOST_PARAMETERS:
        raise errors.BadRequestError("too many query parameters")
    return path, query


def decode_segments(path: str) -> tuple[str, ...]:
    """Split a raw path at its slashes and decode each segment once; ``/`` gives one empty segment.

    Raises BadRequestError for a malformed escape, for text that is not UTF-8, and for segments that
    Kubernetes clients refuse to build: ``.``, ``..`` and those with a percent sign or NUL. No path that is
    served has a segment with a slash, or is very long: NotFoundError. Empty segments are left to
    `parse_metric_path`.
    """
    if path.count("/") > _MOST_SEGMENTS or len(path) > _LONGEST_PATH:
        raise path_not_found()
    segments = tuple(
        _decode_segment(segment) if "%" in segment else segment for segment in path[1:].split("/")
    )
    if any(segment in {".", ".."} or "%" in segment or "\0" in segment for segment in segments):
        raise _invalid_path()
    if any("/" in segment for segment in segments):
        raise path_not_found()
    return segments


def parse_metric_path(group: str, version: str, rest: Sequence[str]) -> MetricRequest:
    """Parse the decoded segments that follow ``/apis/GROUP/VERSION``; slashes at the end mean nothing.

    Raises BadRequestError where upstream says ``invalid request path``, and NotFoundError where no route
    matches. An empty segment in between is refused; upstream takes it for no namespace, no resource or no
    name.
    """
    while rest and not rest[-1]:
        rest = rest[:-1]
    if not all(rest):
        raise path_not_found() if not rest[0] or group == RESOURCE_GROUP else _invalid_path()
    if group == CUSTOM_GROUP:
        return _parse_custom_path(group, version, rest)
    if group == RESOURCE_GROUP:
        return _parse_resource_path(group, version, rest)
    match rest:
        case ["namespaces", namespace, metric]:
            metric = "namespaces" if metric in _NAMESPACE_PARTS else metric
            return MetricRequest("external", group, version, namespace, "", None, metric)
    raise path_not_found()


def _parse_custom_path(group: str, version: str, rest: Sequence[str]) -> MetricRequest:
    form: _Form = "object"
    namespace: str | None = None
    match rest:
        case ["namespaces", name, "metrics", metric] | ["namespaces", name, "metrics", metric, _]:
            form, resource = "namespace", "namespaces"
        case ["namespaces", name, metric] | ["namespaces", name, metric, _, _] if metric in _NAMESPACE_PARTS:
            namespace, resource = name, "namespaces"
        case ["namespaces", namespace, resource, name, metric]:
            pass
        case ["namespaces", _, _]:
            raise _invalid_path()
        case [verb, _, _] if verb in _OLD_VERBS:
            raise _invalid_path()
        case [resource, name, metric]:
            pass
        case _:
            raise path_not_found()
    return MetricRequest(
        form, group, version, namespace, resource, None if name == WILDCARD else name, metric
    )


def _parse_resource_path(group: str, version: str, rest: Sequence[str]) -> MetricRequest:
    """Parse a path of resource metrics, which upstream routes like those of any kind of object."""
    match rest:
        case ["nodes" | "pods" as resource]:
            return MetricRequest("resource", group, version, None, resource, None, "")
        case ["nodes", name]:
            return MetricRequest("resource", group, version, None, "nodes", name, "")
        case ["namespaces", namespace, "pods"]:
            return MetricRequest("resource", group, version, namespace, "pods", None, "")
        case ["namespaces", namespace, "pods", name]:
            return MetricRequest("resource", group, version, namespace, "pods", name, "")
    raise path_not_found()


def path_not_found() -> errors.NotFoundError:
    """Return the error for a path of a served API version that no route matches."""
    return errors.NotFoundError("the server could not find the requested resource", {})


def _decode_segment(segment: str) -> str:
    if _ESCAPE_CUT_SHORT.search(segment):
        raise _invalid_path()
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise _invalid_path() from error


def _invalid_path() -> errors.BadRequestError:
    return errors.BadRequestError("invalid request path")
