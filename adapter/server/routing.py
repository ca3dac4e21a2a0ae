"""What a raw request target asks for, worked out once: the kind of answer, its parts, and its labels in the self-metrics.

A pure function of the target and the groups that are served. Nothing is decided here about who may ask; what an authorizer
is asked about is derived from the very values that the answer is made of.
"""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from adapter import errors
from adapter.server import api, attributes
from adapter.server.api import RESOURCE_GROUP, MetricPath, Parameters, Question
from adapter.server.attributes import Attributes

HEALTH_ENDPOINTS = ("healthz", "livez", "readyz")

_NO_PARAMETERS = Parameters()


class Labels(NamedTuple):
    """The bounded labels of a request in the self-metrics, in the order of their table."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


@dataclass(frozen=True)
class Route:
    """What a target means. `path` and `question` are set for metrics, `document` for documents.

    `error` is what the caller is told instead of an answer: the target itself is wrong. It is never raised, since one
    object serves many requests. A metric path that could be read is there all the same: who may not ask is told that first.
    """

    kind: Literal["metrics", "document", "health", "monitoring", "debug", "unknown"]
    labels: Labels
    segments: tuple[str, ...] = ()
    query: str = ""
    document: str = ""
    path: MetricPath | None = None
    parameters: Parameters = _NO_PARAMETERS
    question: Question | None = None
    error: errors.StatusError | None = None

    @functools.cached_property
    def attributes(self) -> Attributes | None:
        """Return what a GET would do here, None where the target names nothing that there could be."""
        if self.path is not None:
            return attributes.build_attributes(self.path, self.question, watch=self.parameters.watch)
        if self.kind == "document":
            return Attributes("get", self.document)
        return Attributes("get", "/" + "/".join(self.segments)) if self.segments else None


_UNKNOWN = Labels("GET")


def find_route(target: str, served_groups: Collection[str]) -> Route:
    """Return what `target` (the text of the request line) asks for."""
    try:
        path, query = api.split_target(target)
        segments = api.decode_segments(path)
    except (errors.BadRequestError, errors.NotFoundError) as error:
        return Route("unknown", _UNKNOWN, error=error)
    match segments:
        case ["apis", group, version, *rest] if group in served_groups and version in api.VERSIONS[group]:
            if rest not in ([], [""]):
                return _metrics_route(group, version, rest, query)
            labels = Labels("GET", group, version)
            return _document_route(f"/apis/{group}/{version}", labels, query)
        case ["apis", group, version, *_] if group in served_groups and version:
            return Route("unknown", _UNKNOWN, error=api.path_not_found())
        case ["metrics"]:
            return Route("monitoring", Labels("GET", subresource="/metrics"), segments, query)
        case ["debug", "fastpath", "autoscalers", namespace, name] if namespace and name:
            return Route("debug", Labels("GET", subresource="/debug"), segments, query)
        case [endpoint, *_] if endpoint in HEALTH_ENDPOINTS:
            return Route("health", Labels("GET", subresource=f"/{endpoint}"), segments, query)
    has_slash_at_end = len(segments) > 1 and segments[0] != "" and segments[-1] == ""
    document = "/" + "/".join(segments[:-1] if has_slash_at_end else segments)
    return _document_route(document, Labels("GET", subresource=_bounded(segments)), query)


def weigh(target: str) -> int:
    """Return about how many bytes the route of a target takes, with all that comes to be worked out from it."""
    commas = target.count(",") + target.count("%2C") + target.count("%2c")
    return 1400 + 10 * len(target) + 400 * commas + 80 * target.count("/")


def _metrics_route(group: str, version: str, rest: Sequence[str], query: str) -> Route:
    labels = Labels("LIST", group, version, "*", "*", "cluster")
    parameters, path = _NO_PARAMETERS, None
    try:
        parameters = api.parse_parameters(query)
        path = api.parse_metric_path(group, version, rest)
        if group == RESOURCE_GROUP:
            labels = _resource_labels(path)
        if path.form == "namespace" or (path.form == "object" and path.namespace is not None):
            labels = labels._replace(scope="resource")
        question = api.build_question(path, parameters)
    except errors.StatusError as error:
        return Route("metrics", labels, path=path, parameters=parameters, error=error)
    return Route("metrics", labels, path=path, parameters=parameters, question=question)


def _resource_labels(path: MetricPath) -> Labels:
    """Return the labels that API servers give to requests about objects of a kind; there are but two kinds."""
    scope = "resource" if path.name is not None else "cluster" if path.namespace is None else "namespace"
    verb = "LIST" if path.name is None else "GET"
    return Labels(verb, path.group, path.version, path.resource, "", scope)


def _document_route(document: str, labels: Labels, query: str) -> Route:
    try:
        parameters = api.parse_parameters(query)
    except errors.BadRequestError as error:
        return Route("document", labels, document=document, error=error)
    return Route("document", labels, document=document, parameters=parameters)


def _bounded(segments: Sequence[str]) -> str:
    """Return the label of a path without a group: its first segment where we know it."""
    return f"/{segments[0]}" if segments[0] in {"apis", "openapi", "version"} else ""
