"""What resource rules would do, told without a cluster.

An example query of each, whether it merges, and what looks wrong. For people: `fastpath check` prints it, as
`rules.preview` and `lint` for other rules. Nothing of a live answer is computed here.
"""

from collections.abc import Iterator
from typing import NamedTuple

import promql_parser as promql

from adapter.errors import Fault, NamingError, TemplateError
from adapter.model.metrics import GroupResource
from adapter.rules import label_flow, matchers
from adapter.rules.preview import NAMESPACE, OBJECT, Example
from adapter.rules.resource import NODES, PODS, ResourceQuery, ResourceRules


class ResourceSketch(NamedTuple):
    """One of the four templates: how it asks, and warnings, whose paths begin with that of the template.

    `example.fault_path` is ``resources`` where a label is missing, else the template's own key.
    """

    query: ResourceQuery
    example: Example
    warnings: tuple[Fault, ...]

    @property
    def path(self) -> str:
        """The template's place, such as ``resourceRules.cpu.containerQuery``."""
        return self.query.path


def sketch(rules: ResourceRules) -> tuple[ResourceSketch, ...]:
    """Return what the four templates do: cpu before memory, containers before nodes."""
    templates = (
        (rules.containers.cpu, PODS),
        (rules.nodes.cpu, NODES),
        (rules.containers.memory, PODS),
        (rules.nodes.memory, NODES),
    )
    return tuple(_sketch(rules, query, kind) for query, kind in templates)


def _sketch(rules: ResourceRules, query: ResourceQuery, kind: GroupResource) -> ResourceSketch:
    example = _example(query, kind)
    config = rules.config
    found = (
        Fault(query.path, matchers.shorten(value), sentence, config.source, config.line)
        for value, sentence in _findings(query, example)
    )
    return ResourceSketch(query, example, tuple(found))


def _example(query: ResourceQuery, kind: GroupResource) -> Example:
    resource = query.converter.catalogue.find(kind)
    try:
        asked = query.metric_query(kind)
    except (NamingError, TemplateError) as error:
        return Example(resource, "", fault=str(error), fault_path="resources")
    label = asked.object_label
    present = [matchers.present(each) for each in (asked.namespace_label, label) if each]
    try:
        one, everything = (
            asked.render(NAMESPACE if kind == PODS else None, [OBJECT]),
            asked.render_with(present),
        )
    except TemplateError as error:
        return Example(resource, "", label=label, fault=str(error), fault_path=query.path.rpartition(".")[2])
    return Example(resource, one, everything, label, asked.separability)


def _findings(query: ResourceQuery, example: Example) -> Iterator[tuple[str, str]]:
    """Yield value and sentence of what keeps the answer from being usages."""
    if not example.promql:
        yield "", f"no usage is ever served: {example.fault}"
        return
    try:
        parsed = promql.parse(example.promql)
    except ValueError as error:
        yield example.promql, f"this PromQL does not parse: {matchers.shorten(str(error))}"
        return
    kind = "pods" if query.part_label is not None else "nodes"
    if culprit := label_flow.loses(parsed, example.label):
        yield culprit, f"the result has no label {example.label}, so {kind} are never found: group by it"
    elif query.part_label and (culprit := label_flow.loses(parsed, query.part_label)):
        yield (
            culprit,
            f"the result has no label {query.part_label}, so a pod has one container without a name",
        )
    elif query.part_label == "":
        yield "", "there is no containerLabel, so a pod has one container without a name"
