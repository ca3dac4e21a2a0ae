import pytest
import yaml

from adapter.cli.check import lint_query, preview
from adapter.cli.check.preview import ResourcePreview
from tests.support.world import compile_text

RESOURCES = {
    "overrides": {
        "namespace": {"resource": "namespace"},
        "pod": {"resource": "pod"},
        "node": {"resource": "node"},
    }
}
CPU = "sum by (<<.GroupBy>>) (rate(cpu{<<.LabelMatchers>>}[3m]))"
MEMORY = "sum by (<<.GroupBy>>) (memory{<<.LabelMatchers>>})"


def previewed(**cpu: object) -> tuple[ResourcePreview, ...]:
    """Return the previews of sound rules, but for what a test changes in those of cpu."""
    both = {"resources": RESOURCES, "containerLabel": "container"}
    rules = {
        "cpu": {"containerQuery": CPU, "nodeQuery": CPU, **both, **cpu},
        "memory": {"containerQuery": MEMORY, "nodeQuery": MEMORY, **both},
    }
    found = compile_text(yaml.safe_dump({"resourceRules": rules})).resource
    assert found is not None
    return preview.preview_resource_rules(found)


def test_sound_rules() -> None:
    found = previewed()
    assert [each.path for each in found] == [
        "resourceRules.cpu.containerQuery",
        "resourceRules.cpu.nodeQuery",
        "resourceRules.memory.containerQuery",
        "resourceRules.memory.nodeQuery",
    ]
    assert [each.main.promql for each in found[:2]] == [
        'sum by (pod,container) (rate(cpu{namespace="NAMESPACE",pod="NAME"}[3m]))',
        'sum by (node) (rate(cpu{node="NAME"}[3m]))',
    ]
    assert found[2].main.everything == 'sum by (pod,container) (memory{namespace!="",pod!=""})'
    assert [str(each.main.resource and each.main.resource.group_resource) for each in found[:2]] == [
        "pods",
        "nodes",
    ]
    for each in found:
        assert [*lint_query.check_resource_query(each)] == []
        assert each.main.separability is not None
        assert each.main.separability.separable


def test_what_is_asked_alone() -> None:
    verdict = previewed(containerQuery="topk by (<<.GroupBy>>) (1, cpu{<<.LabelMatchers>>})")[
        0
    ].main.separability
    assert verdict is not None
    assert verdict.reason == "topk looks at several objects at once"


@pytest.mark.parametrize(
    ("cpu", "number", "value", "sentence"),
    [
        ({"containerQuery": ""}, 0, "", "no usage is ever served: "),
        ({"resources": {}}, 1, "", "no usage is ever served: no generic resource label form"),
        ({"containerQuery": "sum(cpu{<<.LabelMatchers>>}"}, 0, "sum(cpu{", "this PromQL does not parse: "),
        (
            {"containerQuery": "sum by (container) (cpu{<<.LabelMatchers>>})"},
            0,
            "sum by (container)",
            "the result has no label pod, so pods are never found: group by it",
        ),
        (
            {"containerQuery": "sum by (pod) (cpu{<<.LabelMatchers>>})"},
            0,
            "sum by (pod)",
            "the result has no label container, so a pod has one container without a name",
        ),
        (
            {"nodeQuery": "sum by (instance) (cpu{<<.LabelMatchers>>})"},
            1,
            "sum by (instance)",
            "the result has no label node, so nodes are never found: group by it",
        ),
        (
            {"containerLabel": ""},
            0,
            "",
            "there is no containerLabel, so a pod has one container without a name",
        ),
    ],
)
def test_warnings(cpu: dict[str, object], number: int, value: str, sentence: str) -> None:
    found = previewed(**cpu)[number]
    [warning] = lint_query.check_resource_query(found)
    assert (warning.path, warning.source, warning.line) == (found.path, "rules.yaml", 2)
    assert warning.value.startswith(value)
    assert warning.expected.startswith(sentence)


def test_where_a_fault_is() -> None:
    assert previewed(resources={})[0].main.fault_path == "resources"
    assert previewed(nodeQuery="")[1].main.fault_path == "nodeQuery"
