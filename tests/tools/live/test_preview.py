import pytest
import yaml

from adapter.model.metrics import SeriesInfo
from fastpath_tools.check import lint_query
from fastpath_tools.live import preview
from fastpath_tools.live.preview import ResourcePreview, RulePreview
from tests.support.answers import answers
from tests.support.world import compile_rule, compile_text, series

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
SUM = "metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'"


def custom(rule: str, known: tuple[SeriesInfo, ...] | None = None) -> RulePreview:
    return preview.preview_rule(compile_rule(f"rules: [{{{rule}}}]"), known, external=False)


def external(rule: str, known: tuple[SeriesInfo, ...] | None = None) -> RulePreview:
    return preview.preview_rule(compile_rule(f"externalRules: [{{{rule}}}]"), known, external=True)


def kinds(made: RulePreview) -> list[str]:
    return [str(example.resource.group_resource) for example in made.examples if example.resource]


@pytest.mark.parametrize(("query", "name"), answers("live/preview", "names"))
def test_named_series(query: str, name: str | None) -> None:
    assert preview.named_series(query) == name


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ('hits{a!="",b="x",c=~"x.*",d!~"^$"}', {"a", "b", "c", "d"}),
        ('hits{a="",b!="x",c=~"x*",d!~"x.*",__name__!=""}', set()),
        (r'hits{a=~"(?P<x>a)[[:^alpha:]&&x]"}', {"a"}),
        ('hits{a="b" or c="d"}', set()),
        ("hits{", set()),
    ],
    ids=["demanded", "not demanded", "odd classes", "or", "broken"],
)
def test_demanded_labels(query: str, labels: set[str]) -> None:
    assert preview.demanded_labels(query) == labels


def test_an_expression_that_only_the_parser_reads_demands_nothing() -> None:
    query = 'hits{a=~"b{2000}"}'
    assert preview.parse_selector(query).name == "hits"
    assert preview.demanded_labels(query) == set()


@pytest.mark.parametrize(("query", "name", "takes"), answers("live/preview", "may name"))
def test_may_name(query: str, name: str, *, takes: bool) -> None:
    assert preview.may_name(query, name) is takes


@pytest.mark.parametrize(("text", "sentence"), answers("live/preview", "parse_selector"))
def test_parse_selector(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        preview.parse_selector(text)


def test_a_rule_told_from_its_text() -> None:
    made = custom(
        f"seriesQuery: 'hits_total{{namespace!=\"\"}}', name: {{matches: '^(.*)_total$'}}, {POD}, {SUM}"
    )
    assert (made.known, made.series, made.metrics) == (None, ("hits_total",), ("hits",))
    assert made.labels == {"namespace", "pod"}
    assert kinds(made) == ["namespaces", "pods"]
    namespaces, pods = made.examples
    assert namespaces.promql == 'sum(hits_total{namespace="NAMESPACE"}) by (namespace)'
    assert pods.promql == 'sum(hits_total{namespace="NAMESPACE",pod="NAME"}) by (pod)'
    assert pods.everything == 'sum(hits_total{namespace!="",pod!=""}) by (pod)'
    assert pods.label == "pod"
    assert pods.separability
    assert not pods.separability.reason
    assert made.main == pods


def test_a_rule_that_names_no_series() -> None:
    made = custom(f"seriesQuery: '{{namespace!=\"\"}}', resources: {{template: '<<.Resource>>'}}, {SUM}")
    assert (made.series, made.metrics, kinds(made)) == ((), (), ["namespaces"])
    assert made.examples[0].promql == 'sum(SERIES{namespace="NAMESPACE"}) by (namespace)'
    assert made.main == made.examples[0]


def test_a_named_series_that_the_rule_does_not_take() -> None:
    made = custom(f"seriesQuery: hits, seriesFilters: [{{isNot: hits}}], {POD}, {SUM}")
    assert (made.series, made.metrics) == ((), ())


def test_a_rule_told_from_its_series() -> None:
    known = series(
        {"__name__": "hits_a", "namespace": "x", "service": "y"},
        {"__name__": "hits_b", "namespace": "x", "ingress": "y"},
        {"__name__": "misses", "node": "x"},
    )
    made = custom(
        "seriesQuery: '{a!=\"\"}', seriesFilters: [{is: ^hits}], name: {as: hits}, resources: {template: "
        f"'<<.Resource>>'}}, {SUM}",
        known,
    )
    assert made.known == known
    assert (made.series, made.metrics) == (("hits_a", "hits_b"), ("hits",))
    assert kinds(made) == ["ingresses.networking.k8s.io", "namespaces", "services"]
    assert made.main
    assert made.main.promql == 'sum(hits_b{namespace="NAMESPACE",ingress="NAME"}) by (ingress)'


def test_no_series_at_all() -> None:
    made = custom(f"seriesQuery: hits, {POD}, {SUM}", ())
    assert (made.known, made.series, made.examples, made.main) == ((), (), (), None)


def test_kinds_without_a_namespace() -> None:
    made = custom(f"seriesQuery: hits, resources: {{overrides: {{instance: {{resource: node}}}}}}, {SUM}")
    assert [example.promql for example in made.examples] == ['sum(hits{instance="NAME"}) by (instance)']
    assert made.examples[0].everything == 'sum(hits{instance!=""}) by (instance)'


@pytest.mark.parametrize(("rule", "path", "fault"), answers("live/preview", "unaskable"))
def test_what_cannot_be_asked_says_why(rule: str, path: str, fault: str) -> None:
    for example in custom(f"seriesQuery: hits, {rule}").examples:
        assert (example.promql, example.everything, example.fault_path) == ("", "", path)
        assert example.fault.startswith(fault)


def test_external() -> None:
    made = external(f"seriesQuery: queue, {POD}, {SUM}")
    assert made.external
    (example,) = made.examples
    assert example.resource is None
    assert example.separability is None
    assert example.promql == 'sum(queue{namespace="NAMESPACE"}) by ()'
    assert example.everything == 'sum(queue{namespace!=""}) by ()'
    assert made.main == example


def test_external_without_namespaces() -> None:
    (example,) = external(
        "seriesQuery: queue, resources: {namespaced: false}, metricsQuery: 'x{<<.LabelMatchers>>}'"
    ).examples
    assert (example.promql, example.everything) == ("x{}", "x{}")


@pytest.mark.parametrize(
    ("rule", "path"),
    [("metricsQuery: x", "resources"), ("resources: {namespaced: false}", "metricsQuery")],
    ids=["no label", "no query"],
)
def test_external_that_cannot_be_asked(rule: str, path: str) -> None:
    (example,) = external(f"seriesQuery: queue, {rule}").examples
    assert (example.promql, example.fault_path) == ("", path)
    assert example.fault


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
        assert [*lint_query.check_resource_query(each, 15.0)] == []
        assert each.main.separability is not None
        assert not each.main.separability.reason


def test_what_is_asked_alone() -> None:
    verdict = previewed(containerQuery="topk by (<<.GroupBy>>) (1, cpu{<<.LabelMatchers>>})")[
        0
    ].main.separability
    assert verdict is not None
    assert verdict.reason == "topk combines several objects"


@pytest.mark.parametrize(("cpu", "number", "value", "sentence"), answers("live/preview", "warnings"))
def test_warnings(cpu: dict[str, object], number: int, value: str, sentence: str) -> None:
    found = previewed(**cpu)[number]
    [warning] = lint_query.check_resource_query(found, 15.0)
    assert (warning.path, warning.source) == (found.path, "rules.yaml")
    assert warning.line > 2  # that of the key, not of resourceRules
    assert warning.value.startswith(value)
    assert warning.expected.startswith(sentence)


def test_where_a_fault_is() -> None:
    assert previewed(resources={})[0].main.fault_path == "resources"
    assert previewed(nodeQuery="")[1].main.fault_path == "nodeQuery"
