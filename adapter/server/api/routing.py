"""What a raw request target asks for: the kind of answer, its parts, and its labels in the self-metrics.

A route is a pure function of the target, the groups that are served and the names of resources. Finding one
reads the path and the few parameters about the call itself, and takes little time however long the query is.
The rest of the query is parsed once the caller is known, because anyone may send a target. Authorization is
asked about the very values that the answer is made of.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from adapter import errors
from adapter.server.api import paths, query_string
from adapter.server.api.paths import RESOURCE_GROUP, MetricRequest
from adapter.server.api.query_string import NO_OPTIONS, CallOptions, Question
from adapter.server.auth import authorization
from adapter.server.auth.authorization import Attributes

HEALTH_ENDPOINTS = ("healthz", "livez", "readyz")


class RequestLabels(NamedTuple):
    """The bounded labels of a request in the self-metrics, in the order of their table."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


@dataclass(eq=False)
class Route:
    """What a target means. `request` is set for metrics, `document` for documents.

    `error` answers the request instead: the path itself is wrong, or its `timeout`. It is returned and never
    raised, since one object serves many requests. `resource` is the name under which the resource of a custom
    metric is authorized, "" where it is not known (yet): a path may spell it in several ways. `question` is
    what the query makes of the request, or what is wrong with the query; None until the query is parsed.
    """

    kind: Literal["metrics", "document", "health", "monitoring", "debug", "unknown"]
    labels: RequestLabels
    segments: tuple[str, ...] = ()
    query: str = ""
    document: str = ""
    request: MetricRequest | None = None
    options: CallOptions = NO_OPTIONS
    error: errors.StatusError | None = None
    resource: str = ""
    is_list: bool = False
    """Whether objects or series are listed: then `attributes` have the selectors of the query."""
    question: Question | errors.StatusError | None = None
    weight: int = 0
    """Estimated bytes, once it is kept for the next request."""

    @functools.cached_property
    def parameters(self) -> Mapping[str, str]:
        """The query parameters that a question is made of: of each, the first value."""
        return query_string.parse_parameters(self.query)

    def parse_query(self) -> Question | errors.StatusError:
        """Return what a metrics request asks. Only for callers that are known; a long query in a thread."""
        if self.question is None:
            assert self.request is not None
            try:
                self.question = query_string.build_question(
                    self.request, self.parameters, watch=self.options.watch
                )
            except errors.StatusError as error:
                self.question = error
        return self.question

    @functools.cached_property
    def attributes(self) -> Attributes | None:
        """What a GET does here, None where the target names nothing that could exist."""
        if self.request is None:
            if self.kind == "document":
                return Attributes("get", self.document)
            return Attributes("get", "/" + "/".join(self.segments)) if self.segments else None
        question = self.parse_query() if self.is_list else None
        return authorization.build_attributes(self.request, self.resource, question, watch=self.options.watch)

    @functools.cached_property
    def bare_attributes(self) -> Attributes | None:
        """The same without selectors, which asks for more: for callers whose query is not parsed yet."""
        if not self.is_list or self.request is None:
            return self.attributes
        return authorization.build_attributes(self.request, self.resource, None, watch=self.options.watch)


_UNKNOWN = RequestLabels("GET")


def find_route(
    target: str, served: Mapping[str, tuple[str, ...]], canonical: Callable[[str], str | None] = str
) -> Route:
    """Return what `target` (the text of the request line) asks for.

    `served` has the versions of each group. `canonical` returns the name of a resource that a path may spell
    in several ways, None for one that is not known.
    """
    try:
        path, query = paths.split_target(target)
        segments = paths.decode_segments(path)
    except (errors.BadRequestError, errors.NotFoundError) as error:
        return Route("unknown", _UNKNOWN, error=error)
    match segments:
        case ["apis", group, version, *rest] if version in served.get(group, ()):
            if rest not in ([], [""]):
                return _metrics_route(group, version, rest, query, canonical)
            labels = RequestLabels("GET", group, version)
            return _document_route(f"/apis/{group}/{version}", labels, query)
        case ["apis", group, version, *_] if group in served and version:
            return Route("unknown", _UNKNOWN, error=paths.path_not_found())
        case ["metrics"]:
            return Route("monitoring", RequestLabels("GET", subresource="/metrics"), segments, query)
        case ["debug", "fastpath", "autoscalers", *key] if len(key) in {0, 2} and all(key):
            return Route("debug", RequestLabels("GET", subresource="/debug"), segments, query)
        case [endpoint, *_] if endpoint in HEALTH_ENDPOINTS:
            return Route("health", RequestLabels("GET", subresource=f"/{endpoint}"), segments, query)
    has_slash_at_end = len(segments) > 1 and segments[0] != "" and segments[-1] == ""
    document = "/" + "/".join(segments[:-1] if has_slash_at_end else segments)
    subresource = f"/{segments[0]}" if segments[0] in {"apis", "openapi", "version"} else ""  # bounded
    return _document_route(document, RequestLabels("GET", subresource=subresource), query)


def weigh(target: str) -> int:
    """Return about how many bytes the route of a target takes, with everything that is computed from it."""
    commas = target.count(",") + target.count("%2C") + target.count("%2c")
    return 1400 + 10 * len(target) + 400 * commas + 80 * target.count("/")


def _metrics_route(
    group: str, version: str, rest: Sequence[str], query: str, canonical: Callable[[str], str | None]
) -> Route:
    labels = RequestLabels("LIST", group, version, "*", "*", "cluster")
    options = NO_OPTIONS
    try:
        options = query_string.read_call_options(query)
        request = paths.parse_metric_path(group, version, rest)
    except errors.StatusError as error:
        return Route("metrics", labels, query=query, options=options, error=error)
    if group == RESOURCE_GROUP:  # the labels that API servers give to requests about pods and nodes
        scope = "cluster" if request.namespace is None else "namespace"
        verb, scope = ("LIST", scope) if request.name is None else ("GET", "resource")
        labels = RequestLabels(verb, group, version, request.resource, "", scope)
    if request.form == "namespace" or (request.form == "object" and request.namespace is not None):
        labels = labels._replace(scope="resource")
    resource = canonical(request.resource) if request.form == "object" else None
    is_list = request.name is None and request.form in {"external", "resource"}
    return Route(
        "metrics",
        labels,
        query=query,
        request=request,
        options=options,
        resource=resource or "",
        is_list=is_list,
    )


def _document_route(document: str, labels: RequestLabels, query: str) -> Route:
    try:
        options = query_string.read_call_options(query)
    except errors.BadRequestError as error:
        return Route("document", labels, query=query, document=document, error=error)
    return Route("document", labels, query=query, document=document, options=options)
