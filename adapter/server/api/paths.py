"""Paths and query parameters of the metrics APIs: from a raw request target to the question it asks.

The raw path is split at its slashes first, and each segment is decoded exactly once. Authorization takes the
same `MetricRequest` that the answer is made from, so a review can never be about other values than those
served.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from adapter import errors
from adapter.model import field_selectors, label_selectors, timestamps
from adapter.model.metrics import (
    CustomQuestion,
    ExternalQuestion,
    ResourceQuestion,
)
from adapter.server.api import list_options

CUSTOM_GROUP = "custom.metrics.k8s.io"
EXTERNAL_GROUP = "external.metrics.k8s.io"
RESOURCE_GROUP = "metrics.k8s.io"
VERSIONS = {CUSTOM_GROUP: ("v1beta2", "v1beta1"), EXTERNAL_GROUP: ("v1beta1",), RESOURCE_GROUP: ("v1beta1",)}
"""The versions of each group, the preferred one first: the manifests give it the higher priority."""

Question: TypeAlias = CustomQuestion | ExternalQuestion | ResourceQuestion

WILDCARD = "*"

MOST_SYMBOLS = 4000
LONGEST_SELECTOR = 32 * 1024
"""Bounds on a selector's commas, brackets and operators, and on its characters: parsing takes time."""

LONG_QUERY = 4096
"""Bytes of a raw query above which parsing its selectors may take longer than a few milliseconds."""

ANONYMOUS_QUERY = 1024
"""Bytes of a raw query that an anonymous caller may send."""

_LONGEST_TIMEOUT, _MOST_PARAMETERS, _MOST_SEGMENTS = 100, 1000, 100
_LONGEST_PATH = 16 * 1024  # parsed before the caller is known; no name in Kubernetes is nearly as long
_ESCAPE_CUT_SHORT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_LONGEST_WORD = 3 * len("false") + 1  # escaped; longer text means neither true nor false
# Parts of a namespace in Kubernetes' own API; every API server reads them as such.
_NAMESPACE_PARTS = frozenset({"status", "finalize"})
# Words before a path that once meant a verb; the rest is too short for a metric.
_OLD_VERBS = frozenset({"watch", "proxy"})


class MetricRequest(NamedTuple):
    """A request for metrics: the decoded parts of its path.

    `form` is ``object`` (R/NAME/M, in a namespace or at the root), ``namespace`` (``namespaces/N/metrics/M``:
    `resource` is ``namespaces``, `namespace` None, `name` the namespace described), ``external`` (`resource`
    "") or ``resource`` (pods and nodes of ``metrics.k8s.io``: `metric` ""). `name` is None for the wildcard,
    for external metrics, and for lists of resource metrics.
    """

    form: Literal["object", "namespace", "external", "resource"]
    group: str
    version: str
    namespace: str | None
    resource: str
    name: str | None
    metric: str


class CallOptions(NamedTuple):
    """The query parameters that are needed before the caller is known: the first value of each.

    `pretty` is None if absent or empty; `timeout` is in seconds, None if absent or not positive.
    """

    pretty: bool | None = None
    timeout: float | None = None
    watch: bool = False


_CALL_OPTIONS = frozenset({"pretty", "timeout", "watch"})
_SELECTORS = ("labelSelector", "metricLabelSelector", "fieldSelector")
_PARAMETERS = frozenset({*_SELECTORS, "includeObject", "watch", *list_options.NAMES})


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
    segments = tuple(_decode_segment(segment) for segment in path[1:].split("/"))
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
    if rest and not rest[0]:
        raise path_not_found()
    if group == RESOURCE_GROUP:
        return _parse_resource_path(group, version, rest)
    if not all(rest):
        raise _invalid_path()
    if group == CUSTOM_GROUP:
        return _parse_custom_path(group, version, rest)
    match rest:
        case ["namespaces", namespace, metric]:
            metric = "namespaces" if metric in _NAMESPACE_PARTS else metric
            return MetricRequest("external", group, version, namespace, "", None, metric)
    raise path_not_found()


def _parse_custom_path(group: str, version: str, rest: Sequence[str]) -> MetricRequest:
    match rest:
        case ["namespaces", namespace, "metrics", metric] | ["namespaces", namespace, "metrics", metric, _]:
            return MetricRequest("namespace", group, version, None, "namespaces", _name(namespace), metric)
        case ["namespaces", namespace, part] | ["namespaces", namespace, part, _, _] if (
            part in _NAMESPACE_PARTS
        ):
            return MetricRequest("object", group, version, namespace, "namespaces", _name(namespace), part)
        case ["namespaces", namespace, resource, name, metric]:
            return MetricRequest("object", group, version, namespace, resource, _name(name), metric)
        case ["namespaces", _, _]:
            raise _invalid_path()
        case [verb, _, _] if verb in _OLD_VERBS:
            raise _invalid_path()
        case [resource, name, metric]:
            return MetricRequest("object", group, version, None, resource, _name(name), metric)
    raise path_not_found()


def _parse_resource_path(group: str, version: str, rest: Sequence[str]) -> MetricRequest:
    """Parse a path of resource metrics, which upstream routes like those of any kind of object."""
    if not all(rest):
        raise path_not_found()
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


def read_call_options(query: str) -> CallOptions:
    """Read the options about the call itself from a raw query, without decoding the rest of it.

    kube-apiserver reads these before it authenticates. Raises BadRequestError for a bad `timeout`.
    """
    first = _first_values(query, _CALL_OPTIONS)
    pretty = _decode_form(first.get("pretty", "")[:_LONGEST_WORD])
    watch = first.get("watch")
    return CallOptions(
        pretty=pretty in _TRUE_WORDS if pretty else None,
        timeout=_timeout(first.get("timeout", "")),
        watch=watch is not None and list_options.is_true(_decode_form(watch[:_LONGEST_WORD])),
    )


def parse_parameters(query: str) -> Mapping[str, str]:
    """Return the parameters that a question is made of by name, of each the first value.

    Parsed as Go's net/url does: pairs that do not decode or hold a semicolon are dropped.
    """
    return {name: _decode_form(value) for name, value in _first_values(query, _PARAMETERS).items()}


def build_question(request: MetricRequest, parameters: Mapping[str, str]) -> Question:
    """Return the question of a request.

    A selector that is too large is a 400. A bad `labelSelector` is a 400 even where it selects nothing
    because a name is given; a bad `metricLabelSelector` is a 500 without reason, as upstream. A
    `fieldSelector` of a custom or external metric may only repeat the name of the path. Watching external or
    resource metrics is a 405.
    """
    for name in _SELECTORS:
        text = parameters.get(name, "")
        if len(text) > LONGEST_SELECTOR or sum(map(text.count, ",()!=<>")) > MOST_SYMBOLS:
            raise errors.BadRequestError(f"{name} is too large")
    list_options.check_numbers(parameters)
    return _BUILDERS[request.form](request, parameters)


def _build_external_question(request: MetricRequest, parameters: Mapping[str, str]) -> ExternalQuestion:
    selector = label_selectors.parse_selector(parameters.get("labelSelector", ""))
    fields = field_selectors.parse_selector(parameters.get("fieldSelector", ""))
    list_options.check_together(parameters)
    field_selectors.check_fields(fields)
    if list_options.is_watch(parameters):
        raise _no_watch(request.group, "*")
    assert request.namespace is not None
    return ExternalQuestion(request.namespace, request.metric, selector)


def _build_custom_question(request: MetricRequest, parameters: Mapping[str, str]) -> CustomQuestion:
    selector = label_selectors.parse_selector(parameters.get("labelSelector", ""))
    fields = field_selectors.parse_selector(parameters.get("fieldSelector", ""))
    field_selectors.check_fields(fields)
    field_selectors.check_name(fields, request.name or WILDCARD)
    try:
        metric_selector = label_selectors.parse_selector(parameters.get("metricLabelSelector", ""))
    except errors.BadRequestError as error:
        raise errors.PlainError(error.message) from error
    objects = selector if request.name is None else label_selectors.EVERYTHING
    resource, _, group = request.resource.partition(".")
    spelled = request.resource if group else resource  # errors do not repeat a dot without a group after it
    return CustomQuestion(spelled, request.namespace, request.name, request.metric, objects, metric_selector)


def _build_resource_question(request: MetricRequest, parameters: Mapping[str, str]) -> ResourceQuestion:
    """Return the question about pods or nodes; where a name is given the selectors are not even parsed."""
    resource: Literal["pods", "nodes"] = "pods" if request.resource == "pods" else "nodes"
    if request.name is not None:
        everything = label_selectors.EVERYTHING, field_selectors.EVERYTHING
        return ResourceQuestion(resource, request.namespace, request.name, *everything)
    objects = label_selectors.parse_selector(parameters.get("labelSelector", ""))
    fields = field_selectors.parse_metadata(parameters.get("fieldSelector", ""))
    if list_options.is_watch(parameters):
        raise _no_watch(request.group, resource)
    return ResourceQuestion(resource, request.namespace, None, objects, fields)


_BUILDERS: Mapping[str, Callable[[MetricRequest, Mapping[str, str]], Question]] = MappingProxyType(
    {
        "object": _build_custom_question,
        "namespace": _build_custom_question,
        "external": _build_external_question,
        "resource": _build_resource_question,
    }
)


def _no_watch(group: str, kind: str) -> errors.MethodNotAllowedError:
    message = f'watch is not supported on resources of kind "{kind}.{group}"'
    return errors.MethodNotAllowedError(message, {"group": group, "kind": kind})


def path_not_found() -> errors.NotFoundError:
    """Return the error for a path of a served API version that no route matches."""
    return errors.NotFoundError("the server could not find the requested resource", {})


def query_values(query: str, name: str) -> list[str]:
    """Return all values of one query parameter, in order."""
    return [value for key, value in _pairs(query) if key == name]


def parameter_names(query: str) -> set[str]:
    """Return the names of all query parameters, including those without a value."""
    return {key for key, _ in _pairs(query)}


def _name(segment: str) -> str | None:
    return None if segment == WILDCARD else segment


def _timeout(text: str) -> float | None:
    """Parse the raw value of `timeout`; as upstream, zero and less are no timeout."""
    if not text:
        return None
    if len(text) > _LONGEST_TIMEOUT:
        raise errors.BadRequestError("invalid timeout specified in the request URL - it is too long")
    try:
        seconds = timestamps.parse_go_duration(_decode_form(text))
    except ValueError as error:
        raise errors.BadRequestError(f"invalid timeout specified in the request URL - {error}") from error
    return seconds if seconds > 0 else None


def _first_values(query: str, names: Collection[str]) -> dict[str, str]:
    """Return the first value of each of these parameters, undecoded."""
    found: dict[str, str] = {}
    longest = 3 * max(map(len, names))  # each character may be written as an escape
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if len(key) > longest:
            continue
        name = _decode_form(key) if "%" in key else key
        if name in names and name not in found and _is_kept(part):
            found[name] = value
    return found


def _is_kept(part: str) -> bool:
    return bool(part) and ";" not in part and not _ESCAPE_CUT_SHORT.search(part)


def _pairs(query: str) -> Iterator[tuple[str, str]]:
    for part in query.split("&"):
        if _is_kept(part):
            key, _, value = part.partition("=")
            yield _decode_form(key), _decode_form(value)


def _decode_form(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")


def _decode_segment(segment: str) -> str:
    if "%" not in segment:
        return segment
    if _ESCAPE_CUT_SHORT.search(segment):
        raise _invalid_path()
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise _invalid_path() from error


def _invalid_path() -> errors.BadRequestError:
    return errors.BadRequestError("invalid request path")
