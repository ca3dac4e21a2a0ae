"""The access that a request needs, as an access review asks for it and as a refusal words it.

It is built from the decoded values that the handler answers from, so a review is never about another path,
namespace or name than is served. Verbs and resources are those of Kubernetes' API servers: a metric is the
subresource of the object it describes, an external metric a resource that is listed, and a namespace's own
metric a name under the resource ``metrics``.
"""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from adapter import errors
from adapter.model.go_text import quote
from adapter.model.identity import User
from adapter.model.metrics import ExternalQuestion, ResourceQuestion
from adapter.model.selectors.field_selectors import NAME, FieldSelector
from adapter.model.selectors.label_selectors import LabelSelector, Operator
from adapter.server.api.paths import WILDCARD, MetricRequest
from adapter.server.api.query_string import Question

VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
"""The verb of an HTTP method; any other has "", which only a rule for all verbs allows."""

_OPERATORS = {
    Operator.EQUALS: "In",
    Operator.DOUBLE_EQUALS: "In",
    Operator.IN: "In",
    Operator.NOT_EQUALS: "NotIn",
    Operator.NOT_IN: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True)
class Attributes:
    """One access.

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
            "labelSelector": _requirements(self._label_requirements()) if self.labels else None,
            "fieldSelector": _requirements(self._field_requirements()) if self.fields else None,
        }
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
            message, details = f"{asks} path {quote(self.path)}", {}
        else:
            resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
            where = f"in the namespace {quote(self.namespace)}" if self.namespace else "at the cluster scope"
            message = f"{asks} resource {quote(resource)} in API group {quote(self.group)} {where}"
            details = {"name": self.name, "group": self.group, "kind": self.resource}
        message = message.translate(_ESCAPES) + (f": {reason}" if reason else "")
        return errors.ForbiddenError(
            f"{self._subject()}forbidden: {message}", {key: value for key, value in details.items() if value}
        )

    def _subject(self) -> str:
        if self.path:
            return ""
        name = f" {quote(self.name)}" if self.name else ""
        return f"{self.resource}.{self.group}{name} is "

    def _label_requirements(self) -> Iterator[dict[str, object]]:
        """Yield what a review can express.

        Without ``gt`` and ``lt`` the review asks for more, not for less.
        """
        for requirement in self.labels.requirements if self.labels else ():
            operator = _OPERATORS.get(requirement.operator)
            if operator is not None:
                values = {"values": list(requirement.values)} if requirement.values else {}
                yield {"key": requirement.key, "operator": operator, **values}

    def _field_requirements(self) -> Iterator[dict[str, object]]:
        for term in self.fields.terms if self.fields else ():
            yield {"key": term.field, "operator": "NotIn" if term.negated else "In", "values": [term.value]}


def build_attributes(
    request: MetricRequest, question: Question | errors.StatusError | None, *, watch: bool
) -> Attributes:
    """Return what a GET of a metrics request does; a list is narrowed by the selectors of `question`."""
    group, version = request.group, request.version
    if request.form == "namespace":
        # A path of all namespaces is reviewed as the namespace "*", which no rights within one namespace
        # cover.
        return Attributes("get", "", group, version, "metrics", "", request.metric, request.name or WILDCARD)
    if request.form == "object":
        return Attributes(
            "get",
            "",
            group,
            version,
            request.resource,
            request.metric,
            request.name or WILDCARD,
            request.namespace or "",
        )
    resource, namespace = request.resource or request.metric, request.namespace or ""
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


def _requirements(found: Iterator[dict[str, object]]) -> dict[str, object]:
    listed = list(found)
    return {"requirements": listed} if listed else {}
