"""Autoscalers among the files of `fastpath check`: targets that their metrics cannot exceed.

FastPathAutoscalers and HorizontalPodAutoscalers are compared with the rules that are given with them.
FastPathSchedules of the same files are read along; `adapter.cli.schedule.faults` checks them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.cli.check import saturation
from adapter.cli.check.preview import RulePreview
from adapter.cli.check.saturation import Saturation
from adapter.cli.schedule.faults import GivenSchedule
from adapter.config.yaml import documents
from adapter.config.yaml.documents import YAMLDocument
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.boost import METRIC
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler, as_hpa
from adapter.model.autoscaling.hpa import MetricSpec, MetricTarget
from adapter.model.schedules import documents as schedule_documents

TOLERANCE = 0.1
"""The default of the controller's flag and of Fastpath's, where `behavior` has none."""

_KIND = re.compile(rf"""\bkind["']?\s*:\s*["']?(?:{HPA_KIND}|{KIND}|{schedule_documents.KIND})\b""")


class GivenAutoscaler(NamedTuple):
    """An autoscaler and where it stands: `prefix` is its path in the document, with a full stop."""

    autoscaler: FastPathAutoscaler
    prefix: str
    document: YAMLDocument
    source: str

    def fault(self, path: str, value: str, expected: str) -> Fault:
        """Return a fault at a path below the autoscaler; its sentence names the autoscaler."""
        meta = self.autoscaler.metadata
        name = "/".join(part for part in (meta.namespace, meta.name) if part)
        fault = Fault(path, value, f"{name}: {expected}" if name else expected)
        return documents.located(fault, self.prefix, self.document, self.source)


class Autoscalers(NamedTuple):
    """The autoscalers and schedules of files, and what is wrong with those that cannot be read."""

    given: tuple[GivenAutoscaler, ...] = ()
    schedules: tuple[GivenSchedule, ...] = ()
    faults: tuple[Fault, ...] = ()


def read(text: str, source: str) -> Autoscalers | None:
    """Return the autoscalers and schedules of a manifest, None for a text without one.

    Other objects are left out.
    """
    if not _KIND.search(text):  # most files are rules, which are parsed elsewhere
        return None
    is_manifest = False
    given: list[GivenAutoscaler] = []
    schedules: list[GivenSchedule] = []
    faults: list[Fault] = []
    for document in documents.read_documents(text, source):
        if isinstance(document, InputError):
            faults += document.faults
            continue
        for prefix, tree in autoscaler_documents.documents_in(document.value):
            is_schedule = isinstance(tree, dict) and tree.get("kind") == schedule_documents.KIND
            if not is_schedule and not autoscaler_documents.kind_of(tree):
                continue
            is_manifest = True
            try:
                if is_schedule:
                    schedule = schedule_documents.read_document(tree)
                    schedules.append(GivenSchedule(schedule, prefix, document, source))
                else:
                    autoscaler = autoscaler_documents.read_document(tree, floor_metric=True)
                    given.append(GivenAutoscaler(autoscaler, prefix, document, source))
            except InputError as error:
                faults += (documents.located(each, prefix, document, source) for each in error.faults)
    return Autoscalers(tuple(given), tuple(schedules), tuple(faults)) if is_manifest else None


class _Asked(NamedTuple):
    """A metric of an autoscaler by name, with the place of its source."""

    path: str
    name: str
    target: MetricTarget
    external: bool
    per_pod: bool


def faults_of(given: GivenAutoscaler, rules: Sequence[RulePreview]) -> Iterator[Fault]:
    """Yield the targets that a metric of the rules cannot exceed by the tolerance, so it never scales up."""
    spec = as_hpa(given.autoscaler).spec
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


def warnings_of(given: GivenAutoscaler, rules: Sequence[RulePreview]) -> Iterator[Fault]:
    """Yield metrics that no rule makes, and autoscalers whose metrics all saturate."""
    metrics = as_hpa(given.autoscaler).spec.metrics or ()
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
    found = [_saturation(each, rules) for each in asked]
    capped = [each.series for each in found if each is not None]
    if capped and len(capped) == len(metrics):
        yield given.fault(
            "spec.metrics",
            ", ".join(capped),
            "no metric says how much more is needed at full load: add one of a queue, or of arrivals",
        )


def _asked(metrics: Sequence[MetricSpec]) -> list[_Asked]:
    """Return the metrics that rules make; those of cpu and memory are left out."""
    made = []
    for number, metric in enumerate(metrics):
        path = f"spec.metrics[{number}]"
        if (pods := metric.pods) is not None:
            made.append(_Asked(f"{path}.pods", pods.metric.name, pods.target, external=False, per_pod=True))
        elif (of := metric.object) is not None:
            made.append(_Asked(f"{path}.object", of.metric.name, of.target, external=False, per_pod=False))
        elif (outer := metric.external) is not None:
            name = outer.metric.name
            made.append(_Asked(f"{path}.external", name, outer.target, external=True, per_pod=False))
    return made


def _saturation(asked: _Asked, rules: Sequence[RulePreview]) -> Saturation | None:
    """Return what bounds a metric; the last rule that makes it is the one that serves it."""
    making = [made for made in rules if made.external is asked.external and asked.name in made.metrics]
    return saturation.of_rule(making[-1]) if making else None
