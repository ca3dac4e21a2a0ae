"""What a raw request target asks for: the kind of answer, its parts, and its labels in the self-metrics.

A pure function of the target, the groups that are served and the names of resources. Finding a route reads
the path and the few parameters about the call itself, and takes little time however long the query is. The
rest of the query is read once the caller is known: anyone may send a target. What an authorizer is asked
about is derived from the very values that the answer is made of.
"""

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from adapter import errors
from adapter.server.api import paths
from adapter.server.api.paths import RESOURCE_GROUP, CallOptions, MetricPath, Parameters, Question
from adapter.server.auth import attributes
from adapter.server.auth.attributes import Attributes

HEALTH_ENDPOINTS = ("healthz", "livez", "readyz")

_NO_OPTIONS = CallOptions()


class Labels(NamedTuple):
    """The bounded labels of a request in the self-metrics, in the order of their table."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class Asked(NamedTuple):
    """What the query of a metric path makes of it: a question, or what is wrong with the query."""

    question: Question | None
    error: errors.StatusError | None = None


_NOTHING_ASKED = Asked(None)


@dataclass(eq=False)
class Route:
    """What a target means. `path` is set for metrics, `document` for documents.

    `error` is what the caller is told instead of an answer: the path itself is wrong, or its `timeout`. It
    is never raised, since one object serves many requests. `resource` is the name under which the resource
    of a custom metric is authorized, "" where it is not known (yet): a path may spell it in several ways.
    `asked` is there once the query has been read.
    """

    kind: Literal["metrics", "document", "health", "monitoring", "debug", "unknown"]
    labels: Labels
    segments: tuple[str, ...] = ()
    query: str = ""
    document: str = ""
    path: MetricPath | None = None
    options: CallOptions = _NO_OPTIONS
    error: errors.StatusError | None = None
    resource: str = ""
    asked: Asked | None = None

    @functools.cached_property
    def parameters(self) -> Parameters:
        """Return the other query parameters."""
        return paths.parse_parameters(self.query)

    @property
    def is_read(self) -> bool:
        """Return whether `read` takes no time worth mentioning."""
        return self.asked is not None or len(self.query) <= paths.LONG_QUERY

    @property
    def is_settled(self) -> bool:
        """Return whether the same target means the same next time."""
        return self.error is None and (self.path is None or self.path.form != "object" or bool(self.resource))

    @property
    def is_list(self) -> bool:
        """Return whether objects or series are listed: then `attributes` have the selectors of the query."""
        return self.path is not None and self.path.name is None and self.path.form in {"external", "resource"}

    def read(self) -> Asked:
        """Return what the query asks. Only for callers that are known; of a long query in a thread."""
        if self.asked is None:
            self.asked = _NOTHING_ASKED if self.path is None else _read(self.path, self.parameters)
        return self.asked

    @functools.cached_property
    def attributes(self) -> Attributes | None:
        """Return what a GET would do here, None where the target names nothing that there could be."""
        if self.path is not None:
            question = self.read().question if self.is_list else None
            return attributes.build_attributes(
                self._authorized_path(self.path), question, watch=self.options.watch
            )
        if self.kind == "document":
            return Attributes("get", self.document)
        return Attributes("get", "/" + "/".join(self.segments)) if self.segments else None

    @functools.cached_property
    def bare_attributes(self) -> Attributes | None:
        """Return the same without selectors, which asks for more: for callers whose query is not read yet."""
        if self.path is None:
            return self.attributes
        return attributes.build_attributes(self._authorized_path(self.path), None, watch=self.options.watch)

    def _authorized_path(self, path: MetricPath) -> MetricPath:
        return path._replace(resource=self.resource) if self.resource else path


def _read(path: MetricPath, parameters: Parameters) -> Asked:
    try:
        return Asked(paths.build_question(path, parameters))
    except errors.StatusError as error:
        return Asked(None, error)


_UNKNOWN = Labels("GET")


def as_written(resource: str) -> str | None:
    """Return a resource as a path names it: for where there is no catalogue to know better."""
    return resource


def find_route(
    target: str, served_groups: Collection[str], canonical: Callable[[str], str | None] = as_written
) -> Route:
    """Return what `target` (the text of the request line) asks for.

    `canonical` gives the name of a resource that a path may spell otherwise, None for one that is not known.
    """
    try:
        path, query = paths.split_target(target)
        segments = paths.decode_segments(path)
    except (errors.BadRequestError, errors.NotFoundError) as error:
        return Route("unknown", _UNKNOWN, error=error)
    match segments:
        case ["apis", group, version, *rest] if group in served_groups and version in paths.VERSIONS[group]:
            if rest not in ([], [""]):
                return _metrics_route(group, version, rest, query, canonical)
            labels = Labels("GET", group, version)
            return _document_route(f"/apis/{group}/{version}", labels, query)
        case ["apis", group, version, *_] if group in served_groups and version:
            return Route("unknown", _UNKNOWN, error=paths.path_not_found())
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


def _metrics_route(
    group: str, version: str, rest: Sequence[str], query: str, canonical: Callable[[str], str | None]
) -> Route:
    labels = Labels("LIST", group, version, "*", "*", "cluster")
    options = _NO_OPTIONS
    try:
        options = paths.read_call_options(query)
        path = paths.parse_metric_path(group, version, rest)
    except errors.StatusError as error:
        return Route("metrics", labels, query=query, options=options, error=error)
    if group == RESOURCE_GROUP:
        labels = _resource_labels(path)
    if path.form == "namespace" or (path.form == "object" and path.namespace is not None):
        labels = labels._replace(scope="resource")
    resource = canonical(path.resource) if path.form == "object" else None
    return Route("metrics", labels, query=query, path=path, options=options, resource=resource or "")


def _resource_labels(path: MetricPath) -> Labels:
    """Return the labels that API servers give to requests about objects of a kind; there are but two kinds."""
    scope = "resource" if path.name is not None else "cluster" if path.namespace is None else "namespace"
    verb = "LIST" if path.name is None else "GET"
    return Labels(verb, path.group, path.version, path.resource, "", scope)


def _document_route(document: str, labels: Labels, query: str) -> Route:
    try:
        options = paths.read_call_options(query)
    except errors.BadRequestError as error:
        return Route("document", labels, query=query, document=document, error=error)
    return Route("document", labels, query=query, document=document, options=options)


def _bounded(segments: Sequence[str]) -> str:
    """Return the label of a path without a group: its first segment where we know it."""
    return f"/{segments[0]}" if segments[0] in {"apis", "openapi", "version"} else ""
