"""Authorization: the access that a request needs, and the API server's reviews of it, cached for a while.

An access is built from the decoded values that the handler answers from, so a review is never about another
path, namespace or name than is served. Verbs and resources are those of Kubernetes' API servers: a metric is
the subresource of the object it describes, an external metric a resource that is listed, and a namespace's
own metric a name under the resource ``metrics``.

The order of checks is upstream's: the group ``system:masters``, paths that are open to all, then a
SubjectAccessReview. Requests that come through kube-apiserver are reviewed too, since it promises nothing
about what it allows before it forwards one. A review that fails allows nothing.
"""

import functools
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import NoReturn

from adapter import errors
from adapter.model.clock import Clock
from adapter.model.go_text import quote
from adapter.model.identity import ANONYMOUS, MASTERS, AccessVerdict, User
from adapter.model.metrics import ExternalQuestion, ResourceQuestion
from adapter.model.objects.api_selectors import OPERATOR_TEXTS
from adapter.model.objects.field_selectors import NAME, FieldSelector
from adapter.model.objects.label_selectors import LabelSelector, Operator
from adapter.server.api.paths import WILDCARD, MetricRequest
from adapter.server.api.query_string import Question
from adapter.server.auth.review_cache import ALL_REVIEWS, SHARE, ReviewCache, ReviewLimit
from adapter.telemetry import logs
from adapter.telemetry.metrics import Monitoring

log = logging.getLogger(__name__)

_LARGEST_KEPT = 10_000
"""Characters of an access whose review is cached: a caller chooses them."""

ANONYMOUS_REVIEWS = ReviewLimit("anonymous", 20)
"""Limit on reviews of anonymous callers, which can ask for any number of accesses; users do not wait for
them."""

VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
"""The verb of an HTTP method; any other has "", which only a rule for all verbs allows."""

_OPERATORS = OPERATOR_TEXTS | {
    Operator.EQUALS: "In",
    Operator.DOUBLE_EQUALS: "In",
    Operator.NOT_EQUALS: "NotIn",
}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True)
class Attributes:
    """An access to authorize.

    A path outside the API groups has `path` alone; `labels` and `fields` narrow a list or a watch.
    """

    verb: str
    path: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    labels: LabelSelector | None = None
    fields: FieldSelector | None = None

    @functools.cached_property
    def spec(self) -> dict[str, object]:
        """The access in the spec of a SubjectAccessReview; empty fields are left out, as in Go."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        fields: dict[str, object] = {
            "namespace": self.namespace,
            "verb": self.verb,
            "group": self.group,
            "version": self.version,
            "resource": self.resource,
            "subresource": self.subresource,
            "name": self.name,
        }
        if self.labels and (requirements := _label_requirements(self.labels)):
            fields["labelSelector"] = {"requirements": requirements}
        if self.fields and (requirements := _field_requirements(self.fields)):
            fields["fieldSelector"] = {"requirements": requirements}
        return {"resourceAttributes": {name: value for name, value in fields.items() if value}}

    @functools.cached_property
    def key(self) -> str:
        """The canonical JSON of `spec`: equal for equal accesses, and for no others."""
        return json.dumps(self.spec, sort_keys=True, separators=(",", ":"))

    def with_method(self, method: str) -> "Attributes":
        """Return the access of the same target by another method than GET."""
        if self.path:
            return replace(self, verb=method.lower())
        verb = VERBS.get(method, "")
        if verb == "get":
            return self
        if verb == "delete" and not self.name:
            return replace(self, verb="deletecollection")
        return replace(self, verb=verb, labels=None, fields=None)

    def refusal(self, user: User, reason: str) -> errors.ForbiddenError:
        """Return the error for a caller that may not do this.

        The words are upstream's, `reason` the review's.
        """
        asks = f"User {quote(user.name)} cannot {self.verb}"
        if self.path:
            subject, message, details = "", f"{asks} path {quote(self.path)}", {}
        else:
            name = f" {quote(self.name)}" if self.name else ""
            subject = f"{self.resource}.{self.group}{name} is "
            resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
            where = f"in the namespace {quote(self.namespace)}" if self.namespace else "at the cluster scope"
            message = f"{asks} resource {quote(resource)} in API group {quote(self.group)} {where}"
            details = {"name": self.name, "group": self.group, "kind": self.resource}
        message = message.translate(_ESCAPES) + (f": {reason}" if reason else "")
        return errors.ForbiddenError(
            f"{subject}forbidden: {message}", {key: value for key, value in details.items() if value}
        )


def _label_requirements(selector: LabelSelector) -> list[dict[str, object]]:
    """Return what a review can express: without ``gt`` and ``lt`` it asks for more, not for less."""
    return [
        {"key": requirement.key, "operator": operator}
        | ({"values": list(requirement.values)} if requirement.values else {})
        for requirement in selector.requirements
        if (operator := _OPERATORS.get(requirement.operator)) is not None
    ]


def _field_requirements(selector: FieldSelector) -> list[dict[str, object]]:
    return [
        {"key": term.field, "operator": "NotIn" if term.negated else "In", "values": [term.value]}
        for term in selector.terms
    ]


def build_attributes(
    request: MetricRequest, canonical: str, question: Question | errors.StatusError | None, *, watch: bool
) -> Attributes:
    """Return what a GET of a metrics request does; a list is narrowed by the selectors of `question`.

    `canonical` is the name of an object's resource, "" where it is not known.
    """
    group, version, namespace = request.group, request.version, request.namespace or ""
    if request.form == "namespace":
        # A path of all namespaces is reviewed as the namespace "*", which no rights within one namespace
        # cover.
        return Attributes("get", "", group, version, "metrics", "", request.metric, request.name or WILDCARD)
    if request.form == "object":
        resource, name = canonical or request.resource, request.name or WILDCARD
        return Attributes("get", "", group, version, resource, request.metric, name, namespace)
    resource = request.resource or request.metric
    if request.name is not None:
        return Attributes("get", "", group, version, resource, "", request.name, namespace)
    labels, fields, name = None, None, ""
    if isinstance(question, ExternalQuestion):
        labels = question.selector
    elif isinstance(question, ResourceQuestion):
        labels, fields = question.objects, question.fields
        name = fields.required(NAME) or ""
    verb = "watch" if watch else "list"
    return Attributes(verb, "", group, version, resource, "", name, namespace, labels, fields)


class Authorizer:
    """Authorizes accesses. `allowed_ttl` and `denied_ttl` are how many seconds a verdict is used.

    `review_access` returns the verdict on the spec of a SubjectAccessReview. It raises KubernetesError if
    there is no answer.
    """

    def __init__(
        self,
        review_access: Callable[[dict[str, object]], Awaitable[AccessVerdict]],
        clock: Clock,
        own_metrics: Monitoring,
        *,
        allowed_ttl: float = 10.0,
        denied_ttl: float = 10.0,
        always_allow: Iterable[str] = ("/healthz", "/readyz", "/livez"),
    ) -> None:
        """`always_allow` are the paths that need no review: exact ones, or prefixes that end with ``*``."""
        paths = [path.removeprefix("/") for path in always_allow]
        self._open_paths = frozenset(path for path in paths if not path.endswith("*"))
        self._open_prefixes = tuple(path[:-1] for path in paths if path.endswith("*"))
        self._review_access = review_access
        self._cache: ReviewCache[tuple[str, str], AccessVerdict] = ReviewCache(
            clock,
            own_metrics.access_cache,
            lambda verdict: allowed_ttl if verdict.allowed and not verdict.denied else denied_ttl,
            name="access review",
            cache="accesses",
            monitoring=own_metrics,
            weigh=lambda key: len(key[0]) + len(key[1]),
        )
        attempts = own_metrics.authorization_attempts
        self._allowed, self._denied = attempts.labels("allowed"), attempts.labels("denied")
        self._no_opinion, self._failed = attempts.labels("no-opinion"), attempts.labels("error")

    def is_open(self, wanted: Attributes) -> bool:
        """Return whether an access needs no review; only a path outside the API groups can be open."""
        path = wanted.path.removeprefix("/")
        return bool(wanted.path) and (path in self._open_paths or path.startswith(self._open_prefixes))

    def check_now(self, user: User, wanted: Attributes) -> bool:
        """Return whether the access is known to be allowed; False means that it needs a review.

        Raises ForbiddenError.
        """
        if MASTERS not in user.groups and not (wanted.path and self.is_open(wanted)):
            verdict = self._cache.find((user.key, wanted.key))
            if verdict is None:
                return False
            if verdict.denied or not verdict.allowed:
                self._refuse(user, wanted, verdict)
        self._allowed.inc()
        return True

    async def check(self, user: User, wanted: Attributes) -> None:
        """Have the access reviewed.

        Raises ForbiddenError for a refusal, InternalError for a review that failed, TooManyRequestsError.
        """
        # One user takes a share of all reviews at most.
        limits = (ANONYMOUS_REVIEWS,) if user is ANONYMOUS else (ALL_REVIEWS, ReviewLimit(user.name, SHARE))
        try:
            verdict = await self._cache.ask(
                (user.key, wanted.key),
                lambda: self._review_access(user.spec | wanted.spec),
                keep=len(wanted.key) <= _LARGEST_KEPT,
                limits=limits,
            )
        except errors.KubernetesError as error:
            self._failed.inc()
            raise errors.InternalError("unable to review access") from error
        if verdict.denied or not verdict.allowed:
            self._refuse(user, wanted, verdict)
        self._allowed.inc()

    async def close(self) -> None:
        await self._cache.close()

    def _refuse(self, user: User, wanted: Attributes, verdict: AccessVerdict) -> NoReturn:
        if verdict.allowed:
            self._failed.inc()
            raise errors.InternalError("the access review both allowed and denied")
        (self._denied if verdict.denied else self._no_opinion).inc()
        log.debug("forbidden", extra=logs.facts(user=user.name, access=wanted.key, reason=verdict.reason))
        raise wanted.refusal(user, verdict.reason)
