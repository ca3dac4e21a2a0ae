"""The keys of `scrape` on an external rule: which endpoints are read.

An external metric describes no object, so the rule itself says where its series are: the endpoints of one
Service, or the pods that a label selector matches, in one named namespace. Nothing in an autoscaler can
change that.
"""

from dataclasses import dataclass

from adapter import errors
from adapter.config.yaml.decode import Decoder, Fields, Leaf, Shape
from adapter.model import label_selectors
from adapter.model.label_selectors import EVERYTHING, LabelSelector

_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")

SERVICE = Shape("service", {"namespace": Leaf.TEXT, "name": Leaf.TEXT})
PODS = Shape("pods", {"namespace": Leaf.TEXT, "selector": Leaf.TEXT})
KEYS = ("service", "pods", "honorLabels")
"""The keys of `scrape` that only external rules have."""


@dataclass(frozen=True, slots=True)
class EndpointSource:
    """The endpoints of the Service `service`, or of the pods that `selector` matches if that is "".

    `honor_labels`: a label that an endpoint exposes replaces the attached label of the same name, as in a
    ServiceMonitor.
    """

    namespace: str
    service: str = ""
    selector: LabelSelector = EVERYTHING
    honor_labels: bool = False

    def __str__(self) -> str:
        if self.service:
            return f"Service {self.namespace}/{self.service}"
        return f"pods of namespace {self.namespace} with {self.selector}"


def read(fields: Fields, decoder: Decoder, *, external: bool) -> EndpointSource | None:
    """Return the source of an external rule; None after a fault, and for a rule about pods.

    `fields` are those of `scrape`.
    """
    given = [key for key in ("service", "pods") if key in fields.structs]
    if not external:
        for key in given:
            place = fields.structs[key]
            expected = "belongs on external rules: a rule in rules is read from the pods that it describes"
            decoder.fault(place.path, "", expected, place.line)
        if "honorLabels" in fields.scalars:
            decoder.refuse(
                fields, "honorLabels", "has no effect in rules: the series of a pod belong to that pod"
            )
        return None
    if len(given) != 1:
        value = "both service and pods" if given else "neither service nor pods"
        decoder.fault(
            fields.path,
            value,
            "expected exactly one of service: {namespace, name} and pods: {namespace, selector}: they say "
            "where the series are",
            fields.line,
        )
        return None
    (key,) = given
    inner = fields.structs[key]
    if inner.broken:
        return None
    before = len(decoder.faults)
    namespace = inner.text("namespace")
    if not is_name(namespace):
        decoder.refuse(inner, "namespace", "expected the name of one namespace")
    service, selector = "", EVERYTHING
    if key == "service":
        service = inner.text("name")
        if not is_name(service):
            decoder.refuse(inner, "name", "expected the name of a Service in that namespace")
    else:
        selector = _selector(inner, decoder)
    if len(decoder.faults) > before:
        return None
    return EndpointSource(namespace, service, selector, fields.text("honorLabels") == "true")


def _selector(fields: Fields, decoder: Decoder) -> LabelSelector:
    expected = "expected a label selector as for kubectl -l, such as app=epp"
    try:
        selector = label_selectors.parse_selector(fields.text("selector"))
    except errors.BadRequestError as error:
        decoder.refuse(fields, "selector", f"{expected}: {error.message}")
        return EVERYTHING
    if selector == EVERYTHING:
        decoder.refuse(fields, "selector", f"{expected}, which is not empty")
    return selector


def is_name(text: str, longest: int = 63) -> bool:
    """Return whether a text is a DNS label, as the names of namespaces, Services and ports are."""
    return 0 < len(text) <= longest and _NAME_CHARS.issuperset(text) and "-" not in {text[0], text[-1]}
