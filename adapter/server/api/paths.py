"""From a raw request target to the question it asks, and the seam through which questions are answered.

Here: the paths and query parameters of the metrics APIs. Not here: the JSON of answers (`bodies`), the documents that
list what there is (`documents`), HTTP (`serving`).

Its law: the raw path is split first and each segment decoded exactly once. Whoever else needs the parts of a path (an
authorizer above all) takes the `MetricPath` from here, so that nobody can be asked about other values than are served.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from adapter import errors
from adapter.model import durations
from adapter.model.metrics import (
    CustomQuestion,
    ExternalQuestion,
    ResourceAnswer,
    ResourceQuestion,
)
from adapter.model.selectors import field_selectors, label_selectors
from adapter.server.api import list_options
from adapter.server.api.list_options import ListOptions

CUSTOM_GROUP = "custom.metrics.k8s.io"
EXTERNAL_GROUP = "external.metrics.k8s.io"
RESOURCE_GROUP = "metrics.k8s.io"
VERSIONS = {CUSTOM_GROUP: ("v1beta2", "v1beta1"), EXTERNAL_GROUP: ("v1beta1",), RESOURCE_GROUP: ("v1beta1",)}
"""The versions of each group, the preferred one first, which is what the manifests give the higher priority."""

Question: TypeAlias = CustomQuestion | ExternalQuestion | ResourceQuestion

WILDCARD = "*"

MOST_SYMBOLS = 4000
LONGEST_SELECTOR = 32 * 1024
"""What a selector may hold of commas, brackets and operators, and of characters: to read one takes time, and anyone may send it."""

LONG_QUERY = 4096
"""Bytes of a raw query from which on reading its selectors may take longer than a few milliseconds."""

ANONYMOUS_QUERY = 1024
"""Bytes of a raw query that an anonymous caller may send."""

_LONGEST_TIMEOUT, _MOST_PARAMETERS, _MOST_SEGMENTS = 100, 1000, 100
_LONGEST_PATH = 16 * 1024  # read before the caller is known; no name in Kubernetes is nearly as long
_ESCAPE_CUT_SHORT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_LONGEST_WORD = 3 * len("false") + 1  # escaped; what is longer is none of the words that mean true or false
# What Kubernetes' own API has below a namespace beside resources: read as part of the namespace, as every API server does.
_NAMESPACE_PARTS = frozenset({"status", "finalize"})
# Words before a path that once meant a verb; what follows is too short for a metric then.
_OLD_VERBS = frozenset({"watch", "proxy"})


class ResourceMetricsProvider(Protocol):
    """Who answers questions about cpu and memory; errors as those of `MetricsProvider`."""

    async def resource(self, question: ResourceQuestion) -> ResourceAnswer:
        """Answer a question about pods or nodes; for a named one exactly one item, or an error."""
        ...


class MetricPath(NamedTuple):
    """The decoded parts of a metric path.

    `form` is ``object`` (R/NAME/M, in a namespace or at the root), ``namespace`` (``namespaces/N/metrics/M``: `resource`
    is ``namespaces``, `namespace` None, `name` the namespace described), ``external`` (`resource` "") or ``resource`` (pods and
    nodes of ``metrics.k8s.io``: `metric` ""). `name` is None for the wildcard, for external metrics, and for lists of resource
    metrics.
    """

    form: Literal["object", "namespace", "external", "resource"]
    group: str
    version: str
    namespace: str | None
    resource: str
    name: str | None
    metric: str


class CallOptions(NamedTuple):
    """The query parameters that matter before the caller is known, and for failures: the first value of each.

    `pretty` is None when it was not given or empty; `timeout` is in seconds, None when not given or not positive.
    """

    pretty: bool | None = None
    timeout: float | None = None
    watch: bool = False


class Parameters(NamedTuple):
    """The query parameters that a question is made of: of each, the first value."""

    label_selector: str = ""
    metric_label_selector: str = ""
    include_object: str = ""
    watch: bool = False
    options: ListOptions = ListOptions()


_CALL_OPTIONS = frozenset({"pretty", "timeout", "watch"})
_PARAMETERS = frozenset(
    {"labelSelector", "metricLabelSelector", "includeObject", "watch", *list_options.NAMES}
)


def split_target(target: str) -> tuple[str, str]:
    """Return raw path and raw query of a request target, which may be in absolute form.

    Raises BadRequestError, also for a query of so many parts that reading them would take long.
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

    Raises BadRequestError for an escape that is none, for what is not UTF-8, and for segments that Kubernetes clients
    refuse to build: ``.``, ``..`` and those that hold a percent sign or NUL. One that holds a slash is no segment of a path
    that we serve, nor is any such path so long: NotFoundError. Empty segments are left to `parse_metric_path`.
    """
    if path.count("/") > _MOST_SEGMENTS or len(path) > _LONGEST_PATH:
        raise path_not_found()
    segments = tuple(_decode_segment(segment) for segment in path[1:].split("/"))
    if any(segment in {".", ".."} or "%" in segment or "\0" in segment for segment in segments):
        raise _invalid_path()
    if any("/" in segment for segment in segments):
        raise path_not_found()
    return segments


def parse_metric_path(group: str, version: str, rest: Sequence[str]) -> MetricPath:
    """Parse the decoded segments that follow ``/apis/GROUP/VERSION``; slashes at the end mean nothing.

    Raises BadRequestError where upstream says ``invalid request path``, and NotFoundError for what no route matches. An empty
    segment in between is refused too: upstream reads it as no namespace, no resource or no name.
    """
    rest = _without_empty_end(rest)
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
            return MetricPath("external", group, version, namespace, "", None, metric)
    raise path_not_found()


def _parse_custom_path(group: str, version: str, rest: Sequence[str]) -> MetricPath:
    match rest:
        case ["namespaces", namespace, "metrics", metric] | ["namespaces", namespace, "metrics", metric, _]:
            return MetricPath("namespace", group, version, None, "namespaces", _name(namespace), metric)
        case ["namespaces", namespace, part] | ["namespaces", namespace, part, _, _] if (
            part in _NAMESPACE_PARTS
        ):
            return MetricPath("object", group, version, namespace, "namespaces", _name(namespace), part)
        case ["namespaces", namespace, resource, name, metric]:
            return MetricPath("object", group, version, namespace, resource, _name(name), metric)
        case ["namespaces", _, _]:
            raise _invalid_path()
        case [verb, _, _] if verb in _OLD_VERBS:
            raise _invalid_path()
        case [resource, name, metric]:
            return MetricPath("object", group, version, None, resource, _name(name), metric)
    raise path_not_found()


def _parse_resource_path(group: str, version: str, rest: Sequence[str]) -> MetricPath:
    """Parse a path of resource metrics, which upstream routes as those of any other kind of object."""
    if not all(rest):
        raise path_not_found()
    match rest:
        case ["nodes" | "pods" as resource]:
            return MetricPath("resource", group, version, None, resource, None, "")
        case ["nodes", name]:
            return MetricPath("resource", group, version, None, "nodes", name, "")
        case ["namespaces", namespace, "pods"]:
            return MetricPath("resource", group, version, namespace, "pods", None, "")
        case ["namespaces", namespace, "pods", name]:
            return MetricPath("resource", group, version, namespace, "pods", name, "")
    raise path_not_found()


def read_call_options(query: str) -> CallOptions:
    """Read what a raw query says about the call itself, without decoding the rest of it.

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


def parse_parameters(query: str) -> Parameters:
    """Parse a raw query as Go's net/url does: pairs that do not decode or hold a semicolon are dropped."""
    first = {name: _decode_form(value) for name, value in _first_values(query, _PARAMETERS).items()}
    return Parameters(
        label_selector=first.get("labelSelector", ""),
        metric_label_selector=first.get("metricLabelSelector", ""),
        include_object=first.get("includeObject", ""),
        watch="watch" in first and list_options.is_true(first["watch"]),
        options=list_options.read(first),
    )


def build_question(path: MetricPath, parameters: Parameters) -> Question:
    """Return the question of a request.

    A selector that is too large is a 400. A bad `labelSelector` is a 400 even where it selects nothing (a name is given); a bad `metricLabelSelector` is a
    500 without reason, as upstream. A `fieldSelector` of a custom or external metric may only repeat the name of the path.
    Watching external or resource metrics is a 405.
    """
    _check_size(parameters)
    list_options.check_numbers(parameters.options)
    if path.form == "resource":
        return _build_resource_question(path, parameters)
    selector = label_selectors.parse_selector(parameters.label_selector)
    fields = list_options.parse_fields(parameters.options)
    if path.form == "external":
        list_options.check_together(parameters.options, watch=parameters.watch)
        field_selectors.check_fields(fields)
        if parameters.watch:
            message = f'watch is not supported on resources of kind "*.{path.group}"'
            raise errors.MethodNotAllowedError(message, {"group": path.group, "kind": "*"})
        assert path.namespace is not None
        return ExternalQuestion(path.namespace, path.metric, selector)
    field_selectors.check_fields(fields)
    field_selectors.check_name(fields, path.name or WILDCARD)
    try:
        metric_selector = label_selectors.parse_selector(parameters.metric_label_selector)
    except errors.BadRequestError as error:
        raise errors.PlainError(error.message) from error
    objects = selector if path.name is None else label_selectors.EVERYTHING
    resource, _, group = path.resource.partition(".")
    asked = (
        path.resource if group else resource
    )  # a dot without a group after it is not repeated to the caller
    return CustomQuestion(asked, path.namespace, path.name, path.metric, objects, metric_selector)


def _check_size(parameters: Parameters) -> None:
    """Refuse selectors of a size that nobody needs and that would take long to read."""
    for name, text in (
        ("labelSelector", parameters.label_selector),
        ("metricLabelSelector", parameters.metric_label_selector),
        ("fieldSelector", parameters.options.field_selector),
    ):
        if len(text) > LONGEST_SELECTOR or sum(map(text.count, ",()!=<>")) > MOST_SYMBOLS:
            raise errors.BadRequestError(f"{name} is too large")


def _build_resource_question(path: MetricPath, parameters: Parameters) -> ResourceQuestion:
    """Return the question about pods or nodes; selectors mean nothing, and may be anything, where a name is given."""
    assert path.resource in {"pods", "nodes"}
    resource: Literal["pods", "nodes"] = "pods" if path.resource == "pods" else "nodes"
    if path.name is not None:
        everything = label_selectors.EVERYTHING, field_selectors.EVERYTHING
        return ResourceQuestion(resource, path.namespace, path.name, *everything)
    objects = label_selectors.parse_selector(parameters.label_selector)
    fields = field_selectors.parse_metadata(parameters.options.field_selector)
    if parameters.watch:
        message = f'watch is not supported on resources of kind "{resource}.{path.group}"'
        raise errors.MethodNotAllowedError(message, {"group": path.group, "kind": resource})
    return ResourceQuestion(resource, path.namespace, None, objects, fields)


def path_not_found() -> errors.NotFoundError:
    """Return the error of a path inside a served API version that no route matches."""
    return errors.NotFoundError("the server could not find the requested resource", {})


def query_values(query: str, name: str) -> list[str]:
    """Return all values of one query parameter, in order."""
    return [value for key, value in _pairs(query) if key == name]


def parameter_names(query: str) -> set[str]:
    """Return the names of all query parameters, those without a value included."""
    return {key for key, _ in _pairs(query)}


def _without_empty_end(segments: Sequence[str]) -> Sequence[str]:
    end = len(segments)
    while end and not segments[end - 1]:
        end -= 1
    return segments[:end]


def _name(segment: str) -> str | None:
    return None if segment == WILDCARD else segment


def _timeout(text: str) -> float | None:
    """Parse the raw value of `timeout`; zero and less mean none, as upstream."""
    if not text:
        return None
    if len(text) > _LONGEST_TIMEOUT:
        raise errors.BadRequestError("invalid timeout specified in the request URL - it is too long")
    try:
        seconds = durations.parse_go_duration(_decode_form(text))
    except ValueError as error:
        raise errors.BadRequestError(f"invalid timeout specified in the request URL - {error}") from error
    return seconds if seconds > 0 else None


def _first_values(query: str, names: Collection[str]) -> dict[str, str]:
    """Return the first value of each of these parameters as it is written. Others are not decoded."""
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
