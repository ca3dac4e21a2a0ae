"""Autoscalers among the files of `fastpath check`: how they are boosted, and what their metrics can give.

FastPathAutoscalers and HorizontalPodAutoscalers are compared with the rules that are given with them: a
target has to be one that its metric can exceed, and a metric one of the objects that it is asked for.
FastPathSchedules of the same files are read along; `fastpath_tools.check.schedules` checks them. Annotations
and handshake are read by the functions of the scaler, so that an HPA without a fault is boosted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.bounds.schedule import documents as schedule_documents
from adapter.errors import Fault
from adapter.model.autoscaling import boost, fastpath_autoscaler
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.boost import METRIC
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricSpec, MetricTarget
from fastpath_tools import manifests, origins
from fastpath_tools.check import saturation
from fastpath_tools.check.saturation import Saturation
from fastpath_tools.check.schedules import GivenSchedule
from fastpath_tools.live.preview import RulePreview
from fastpath_tools.manifests import NOWHERE, ManifestObject

TOLERANCE = 0.1
"""The default of the controller's flag and of Fastpath's, where `behavior` has none."""

_POD = CrossVersionObjectReference("Pod", "", "v1")
"""What metrics of type Pods describe."""

_KINDS = f"{fastpath_autoscaler.HPA_KIND}|{fastpath_autoscaler.KIND}|{schedule_documents.KIND}"
_KIND = re.compile(rf"""\bkind["']?\s*:\s*["']?(?:{_KINDS})\b""")
_OBJECT = re.compile(r"""^(?:\{\s*)?["']?(?:apiVersion|kind)["']?\s*:""", re.MULTILINE)


class CheckedAutoscaler(NamedTuple):
    """An autoscaler, and the object that it was read from."""

    autoscaler: fastpath_autoscaler.FastPathAutoscaler
    origin: ManifestObject

    @property
    def kind(self) -> str:
        return autoscaler_documents.kind_of(self.origin.tree)

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations; the document was read before, so that they are texts."""
        annotations = self.origin.tree["metadata"].get("annotations") or {}
        return {name: text for name, text in annotations.items() if text is not None}

    def fault(self, path: str, value: str, expected: str) -> Fault:
        """Return a fault at a path below the autoscaler; its sentence names the autoscaler."""
        meta = self.autoscaler.metadata
        name = meta.name if meta.namespace == NOWHERE else f"{meta.namespace}/{meta.name}"
        return self.origin.located(Fault(path, value, f"{name}: {expected}"))

    def annotation_fault(self, name: str, expected: str) -> Fault:
        return self.fault(f"metadata.annotations[{json.dumps(name, ensure_ascii=False)}]", "", expected)


@dataclass(slots=True)
class Autoscalers:
    """The autoscalers and schedules of files, and what is wrong with those that cannot be read."""

    given: list[CheckedAutoscaler] = field(default_factory=list)
    schedules: list[GivenSchedule] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def read(text: str, source: str, into: Autoscalers) -> bool:
    """Add the autoscalers and schedules of a manifest; return False for a text without one.

    Other objects are left out. A document that cannot be read may be one of these if it is of Kubernetes.
    """
    if not _KIND.search(text):  # most files are rules, which are parsed elsewhere
        return False
    is_manifest = False
    faults: list[Fault] = []
    for given in manifests.objects_in(text, source, faults):
        tree = given.tree
        is_schedule = isinstance(tree, dict) and tree.get("kind") == schedule_documents.KIND
        if not is_schedule and not autoscaler_documents.kind_of(tree):
            if isinstance(tree, dict) and "kind" not in tree:
                faults.append(
                    given.located(Fault("", "", "expected objects alone: put rules into another file"))
                )
            continue
        is_manifest = True
        with given.collecting(faults):
            if is_schedule:
                into.schedules.append(GivenSchedule(schedule_documents.read_document(tree), given))
            else:
                autoscaler = autoscaler_documents.read_document(tree, NOWHERE, floor_metric=True)
                into.given.append(CheckedAutoscaler(autoscaler, given))
    is_manifest = is_manifest or bool(faults and _OBJECT.search(text))
    into.faults += faults if is_manifest else ()
    return is_manifest


class _MetricByName(NamedTuple):
    """A metric of an autoscaler by name, with the place of its source."""

    path: str
    name: str
    target: MetricTarget
    external: bool = False
    described: CrossVersionObjectReference | None = None

    def is_made_by(self, rule: RulePreview) -> bool:
        """Whether a rule makes a metric of this name in this API, whatever objects it is of."""
        return rule.external is self.external and self.name in rule.metrics

    def is_served_by(self, rule: RulePreview) -> bool:
        """Whether a rule makes this metric, and may have it for the described object."""
        return self.is_made_by(rule) and (self.described is None or _may_describe(rule, self.described))

    def saturation(self, rules: Sequence[RulePreview]) -> Saturation | None:
        """Return what bounds the metric; the last rule that makes it is the one that serves it."""
        making = [rule for rule in rules if self.is_served_by(rule)]
        return saturation.of_rule(making[-1]) if making else None


def _metrics_by_name(metrics: Sequence[MetricSpec]) -> list[_MetricByName]:
    """Return the metrics that rules make; those of cpu and memory are left out."""
    named = []
    for number, metric in enumerate(metrics):
        path = f"spec.metrics[{number}]"
        if (pods := metric.pods) is not None:
            named.append(_MetricByName(f"{path}.pods", pods.metric.name, pods.target, described=_POD))
        elif (source := metric.object) is not None:
            name, described = source.metric.name, source.described_object
            named.append(_MetricByName(f"{path}.object", name, source.target, described=described))
        elif (outer := metric.external) is not None:
            named.append(_MetricByName(f"{path}.external", outer.metric.name, outer.target, external=True))
    return named


def faults_of(given: CheckedAutoscaler, rules: Sequence[RulePreview]) -> Iterator[Fault]:
    """Yield why an HPA is not boosted, and the targets that a metric of the rules cannot exceed."""
    if given.kind == fastpath_autoscaler.HPA_KIND:
        yield from _boost_faults(given)
    spec = fastpath_autoscaler.with_defaults(given.autoscaler).spec
    up = None if spec.behavior is None else spec.behavior.scale_up
    tolerance = TOLERANCE if up is None or up.tolerance is None else up.tolerance.approximate()
    # A target that its metric cannot exceed by the tolerance never scales up.
    for metric in _metrics_by_name(spec.metrics or ()):
        cap, target = metric.saturation(rules), metric.target
        wanted = target.average_value if target.average_value is not None else target.value
        if cap is None or cap.largest is None or wanted is None:
            continue
        # of an object, and of an external metric, an average is the value divided by the replicas
        is_divided = target.average_value is not None and metric.described is not _POD
        least = max(spec.min_replicas or 0, 1) if is_divided else 1
        greatest = cap.largest / least / (1 + tolerance)
        if wanted.approximate() < greatest:
            continue
        key = "averageValue" if target.average_value is not None else "value"
        sentence = (
            f"{metric.name} cannot exceed {cap.largest:g}, because {cap.series} cannot exceed "
            f"{cap.gauge.bound}, so it never asks for more replicas: expected less than {greatest:.4g}, "
            f"which leaves the tolerance of {tolerance:g}"
        )
        yield given.fault(f"{metric.path}.target.{key}", str(wanted), sentence)


def _boost_faults(given: CheckedAutoscaler) -> Iterator[Fault]:
    """Yield why an HPA that asks for it is not boosted, or lacks an option."""
    spec = fastpath_autoscaler.plain_spec(given.autoscaler.spec)
    wishes = boost.read_annotations(given.annotations, boost.without_handshake(spec.metrics) or ())
    for fault in wishes.faults:
        name, _, sentence = fault.removeprefix("annotation ").partition(": ")
        yield given.annotation_fault(name, sentence)
    handshake = boost.check_handshake(given.autoscaler.metadata.name, spec)
    if wishes.mode == fastpath_autoscaler.BOOST and not handshake.holds:
        fault = handshake.fault.removeprefix("spec.metrics has ")
        yield given.fault("spec.metrics", "", f"{fault}; `fastpath boost` writes it")


def _resource_faults(given: CheckedAutoscaler, metrics: Sequence[MetricSpec]) -> Iterator[Fault]:
    """Yield the resource metrics that no API serves."""
    for number, metric in enumerate(metrics):
        for key, source in (("resource", metric.resource), ("containerResource", metric.container_resource)):
            if source is not None and source.name not in {"cpu", "memory"}:
                sentence = (
                    "the resource metrics are cpu and memory only: read others by type Pods or External"
                )
                yield given.fault(f"spec.metrics[{number}].{key}.name", source.name, sentence)


def warnings_of(
    given: CheckedAutoscaler, rules: Sequence[RulePreview], earlier: Sequence[CheckedAutoscaler] = ()
) -> Iterator[Fault]:
    """Yield what has no effect, metrics that no rule makes or serves, and metrics that all saturate.

    `earlier` are the autoscalers before this one, which may have the same target.
    """
    yield from _boost_warnings(given)
    if rivalry := origins.rivalry(given.origin.tree, (other.origin.tree for other in earlier)):
        yield given.fault("spec.scaleTargetRef", "", rivalry)
    specs = fastpath_autoscaler.with_defaults(given.autoscaler).spec.metrics or ()
    metrics = _metrics_by_name(specs)
    yield from _resource_faults(given, specs)
    for metric in metrics:
        same_api = [rule for rule in rules if rule.external is metric.external]
        if not any(map(metric.is_made_by, same_api)):
            other_api = metric._replace(external=not metric.external)
            if other := next(filter(other_api.is_made_by, rules), None):
                wanted = "Pods or Object" if metric.external else "External"
                sentence = f"{other.path} makes it, in another API: use a metric of type {wanted}"
                yield given.fault(f"{metric.path}.metric.name", metric.name, sentence)
                continue
        # a rule that names no metric, as without its series, may make any
        are_known = bool(same_api) and all(rule.metrics for rule in same_api)
        if not are_known or metric.name == METRIC or any(map(metric.is_served_by, same_api)):
            continue
        making = [rule for rule in same_api if metric.is_made_by(rule)]
        path, value = f"{metric.path}.metric.name", metric.name
        if not making:
            api = "externalRules" if metric.external else "rules"
            yield given.fault(path, value, f"none of the {api} of these files makes it")
            continue
        assert metric.described is not None
        if metric.described.name:
            path = f"{metric.path}.describedObject"
            value = f"{metric.described.kind} {metric.described.api_version}".strip()
        kinds = {example.resource.kind for rule in making for example in rule.examples if example.resource}
        served = ", ".join(sorted(kinds)) or "no object"
        sentence = f"no rule of these files has {metric.name} of this kind: it is of {served}"
        yield given.fault(path, value, sentence)
    caps = [cap for cap in (metric.saturation(rules) for metric in metrics) if cap is not None]
    if caps and len(caps) == len(specs):
        sentence = "no metric says how much more is needed at full load: add one of a queue, or of arrivals"
        yield given.fault("spec.metrics", ", ".join(cap.series for cap in caps), sentence)


def _boost_warnings(given: CheckedAutoscaler) -> Iterator[Fault]:
    """Yield annotations that nothing reads, and why an HPA is only advised."""
    annotations = given.annotations
    if given.kind == fastpath_autoscaler.KIND:
        for name in annotations:
            if name in boost.ANNOTATIONS:
                sentence = f"only a HorizontalPodAutoscaler has it: a {fastpath_autoscaler.KIND} has fields"
                yield given.annotation_fault(name, sentence)
        return
    for name, expected in origins.unknown_annotations(annotations):
        yield given.annotation_fault(name, expected)
    owner = origins.owner_of(given.origin.tree)
    if owner and boost.read_annotations(annotations).mode == fastpath_autoscaler.BOOST:
        yield given.fault("metadata", "", f"it is only advised: {boost.owned_by(owner)}")


def _may_describe(rule: RulePreview, described: CrossVersionObjectReference) -> bool:
    """Whether a rule may have its metric for objects of a kind.

    Without a cluster the kind of a resource that an override names may be unknown: then the group decides.
    A template may name any resource, until the labels of the series are known.
    """
    if rule.known is None and rule.rule.converter.template is not None:
        return True
    group = described.api_version.rpartition("/")[0]
    resources = [example.resource for example in rule.examples if example.resource is not None]
    kind = described.kind
    return any(resource.group == group and resource.kind in (kind, resource.plural) for resource in resources)
