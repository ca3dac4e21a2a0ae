"""Autoscalers among the files of `fastpath check`: how they are boosted, and what their metrics can give.

FastPathAutoscalers and HorizontalPodAutoscalers are compared with the rules that are given with them: a
target has to be one that its metric can exceed, and a metric one of the objects that it is asked for.
FastPathSchedules of the same files are read along; `fastpath_tools.check.schedule_faults` checks them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adapter.bounds.schedule import documents as schedule_documents
from adapter.errors import Fault
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.boost import METRIC
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler, with_defaults
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricSpec, MetricTarget
from fastpath_tools import manifests
from fastpath_tools.check import boosted, saturation
from fastpath_tools.check.saturation import Saturation
from fastpath_tools.check.schedule_faults import GivenSchedule
from fastpath_tools.live.preview import RulePreview
from fastpath_tools.manifests import NOWHERE, ManifestObject

TOLERANCE = 0.1
"""The default of the controller's flag and of Fastpath's, where `behavior` has none."""

_POD = CrossVersionObjectReference("Pod", "", "v1")
"""What metrics of type Pods describe."""

_KIND = re.compile(rf"""\bkind["']?\s*:\s*["']?(?:{HPA_KIND}|{KIND}|{schedule_documents.KIND})\b""")


class CheckedAutoscaler(NamedTuple):
    """An autoscaler, and the object that it was read from."""

    autoscaler: FastPathAutoscaler
    origin: ManifestObject

    @property
    def tree(self) -> Mapping[str, Any]:
        tree: Mapping[str, Any] = self.origin.tree
        return tree

    @property
    def kind(self) -> str:
        return autoscaler_documents.kind_of(self.tree)

    def faults(self, found: Iterable[boosted.BoostFinding]) -> Iterator[Fault]:
        return (self.fault(path, "", sentence) for path, sentence in found)

    def fault(self, path: str, value: str, expected: str) -> Fault:
        """Return a fault at a path below the autoscaler; its sentence names the autoscaler."""
        meta = self.autoscaler.metadata
        name = meta.name if meta.namespace == NOWHERE else f"{meta.namespace}/{meta.name}"
        return self.origin.located(Fault(path, value, f"{name}: {expected}"))


@dataclass(slots=True)
class Autoscalers:
    """The autoscalers and schedules of files, and what is wrong with those that cannot be read."""

    given: list[CheckedAutoscaler] = field(default_factory=list)
    schedules: list[GivenSchedule] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def read(text: str, source: str, into: Autoscalers) -> bool:
    """Add the autoscalers and schedules of a manifest; return False for a text without one.

    Other objects are left out.
    """
    if not _KIND.search(text):  # most files are rules, which are parsed elsewhere
        return False
    is_manifest = False
    faults: list[Fault] = []
    for each in manifests.objects_in(text, source, faults):
        is_schedule = isinstance(each.tree, dict) and each.tree.get("kind") == schedule_documents.KIND
        if not is_schedule and not autoscaler_documents.kind_of(each.tree):
            continue
        is_manifest = True
        with each.collecting(faults):
            if is_schedule:
                into.schedules.append(GivenSchedule(schedule_documents.read_document(each.tree), each))
            else:
                autoscaler = autoscaler_documents.read_document(each.tree, NOWHERE, floor_metric=True)
                into.given.append(CheckedAutoscaler(autoscaler, each))
    into.faults += faults if is_manifest else ()
    return is_manifest


class _Asked(NamedTuple):
    """A metric of an autoscaler by name, with the place of its source."""

    path: str
    name: str
    target: MetricTarget
    external: bool
    per_pod: bool
    described: CrossVersionObjectReference | None = None

    def is_made_by(self, rule: RulePreview) -> bool:
        """Whether a rule makes a metric of this name in this API, whatever objects it is of."""
        return rule.external is self.external and self.name in rule.metrics

    def is_served_by(self, rule: RulePreview) -> bool:
        """Whether a rule makes this metric, and may have it for the described object."""
        return self.is_made_by(rule) and (self.described is None or _may_describe(rule, self.described))


def faults_of(given: CheckedAutoscaler, rules: Sequence[RulePreview]) -> Iterator[Fault]:
    """Yield why an HPA is not boosted, and the targets that a metric of the rules cannot exceed."""
    if given.kind == HPA_KIND:
        yield from given.faults(boosted.faults_of(given.autoscaler, given.tree))
    yield from _unreachable(given, rules)


def _unreachable(given: CheckedAutoscaler, rules: Sequence[RulePreview]) -> Iterator[Fault]:
    """Yield the targets that a metric cannot exceed by the tolerance, so it never scales up."""
    spec = with_defaults(given.autoscaler).spec
    up = None if spec.behavior is None else spec.behavior.scale_up
    tolerance = TOLERANCE if up is None or up.tolerance is None else up.tolerance.approximate()
    for asked in _asked(spec.metrics or ()):
        found = _saturation(asked, rules)
        target = asked.target
        wanted = target.average_value if target.average_value is not None else target.value
        if found is None or found.largest is None or wanted is None:
            continue
        # of an object, and of an external metric, an average is the value divided by the replicas
        is_divided = target.average_value is not None and not asked.per_pod
        least = max(spec.min_replicas or 0, 1) if is_divided else 1
        greatest = found.largest / least / (1 + tolerance)
        if wanted.approximate() < greatest:
            continue
        key = "averageValue" if target.average_value is not None else "value"
        sentence = (
            f"{asked.name} cannot exceed {found.largest:g}, because {found.series} cannot, so it never asks "
            f"for more replicas: expected less than {greatest:.4g}, which leaves the tolerance of "
            f"{tolerance:g}"
        )
        yield given.fault(f"{asked.path}.target.{key}", str(wanted), sentence)


def warnings_of(given: CheckedAutoscaler, rules: Sequence[RulePreview]) -> Iterator[Fault]:
    """Yield what has no effect, metrics that no rule makes or serves, and metrics that all saturate."""
    yield from given.faults(boosted.warnings_of(given.tree, given.kind))
    metrics = with_defaults(given.autoscaler).spec.metrics or ()
    asked = _asked(metrics)
    for each in asked:
        same_api = [rule for rule in rules if rule.external is each.external]
        made = {metric for rule in same_api for metric in rule.metrics}
        are_known = bool(same_api) and all(rule.metrics for rule in same_api)
        if are_known and each.name not in made | {METRIC}:
            api = "externalRules" if each.external else "rules"
            yield given.fault(
                f"{each.path}.metric.name", each.name, f"none of the {api} of these files makes it"
            )
        elif are_known and each.name != METRIC and not any(map(each.is_served_by, same_api)):
            assert each.described is not None
            kind = f"{each.described.kind} {each.described.api_version}".strip()
            yield given.fault(
                f"{each.path}.describedObject" if each.described.name else f"{each.path}.metric.name",
                kind if each.described.name else each.name,
                f"no rule of these files has {each.name} of this kind: it is of {_kinds(each, same_api)}",
            )
    found = [_saturation(each, rules) for each in asked]
    capped = [each.series for each in found if each is not None]
    if capped and len(capped) == len(metrics):
        yield given.fault(
            "spec.metrics",
            ", ".join(capped),
            "no metric says how much more is needed at full load: add one of a queue, or of arrivals",
        )


def _may_describe(rule: RulePreview, described: CrossVersionObjectReference) -> bool:
    """Whether a rule may have its metric for objects of a kind.

    Without a cluster the kind of a resource that an override names may be unknown: then the group decides.
    A template may name any resource, until the labels of the series are known.
    """
    if rule.known is None and rule.rule.converter.template is not None:
        return True
    group = described.api_version.rpartition("/")[0]
    resources = [each.resource for each in rule.examples if each.resource is not None]
    return any(each.group == group and each.kind in (described.kind, each.plural) for each in resources)


def _kinds(asked: _Asked, rules: Sequence[RulePreview]) -> str:
    """Return the kinds of objects that rules have a metric for."""
    making = [rule for rule in rules if asked.is_made_by(rule)]
    kinds = {each.resource.kind for rule in making for each in rule.examples if each.resource is not None}
    return ", ".join(sorted(kinds)) or "no object"


def _asked(metrics: Sequence[MetricSpec]) -> list[_Asked]:
    """Return the metrics that rules make; those of cpu and memory are left out."""
    made = []
    for number, metric in enumerate(metrics):
        path = f"spec.metrics[{number}]"
        if (pods := metric.pods) is not None:
            name = pods.metric.name
            made.append(
                _Asked(f"{path}.pods", name, pods.target, external=False, per_pod=True, described=_POD)
            )
        elif (of := metric.object) is not None:
            name, described = of.metric.name, of.described_object
            made.append(
                _Asked(f"{path}.object", name, of.target, external=False, per_pod=False, described=described)
            )
        elif (outer := metric.external) is not None:
            name = outer.metric.name
            made.append(_Asked(f"{path}.external", name, outer.target, external=True, per_pod=False))
    return made


def _saturation(asked: _Asked, rules: Sequence[RulePreview]) -> Saturation | None:
    """Return what bounds a metric; the last rule that makes it is the one that serves it."""
    making = [made for made in rules if asked.is_served_by(made)]
    return saturation.of_rule(making[-1]) if making else None
