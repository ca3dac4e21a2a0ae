import pytest

from adapter.cli.check import preview
from adapter.cli.check.preview import RulePreview
from adapter.model.metrics import SeriesInfo
from tests.support.world import compile_rule, series

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
SUM = "metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'"


def custom(rule: str, known: tuple[SeriesInfo, ...] | None = None) -> RulePreview:
    return preview.preview_rule(compile_rule(f"rules: [{{{rule}}}]"), known, external=False)


def external(rule: str, known: tuple[SeriesInfo, ...] | None = None) -> RulePreview:
    return preview.preview_rule(compile_rule(f"externalRules: [{{{rule}}}]"), known, external=True)


def kinds(made: RulePreview) -> list[str]:
    return [str(example.resource.group_resource) for example in made.examples if example.resource]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("hits", "hits"),
        ('hits{a="b"}', "hits"),
        ('{__name__="hits"}', "hits"),
        ('{__name__="^hits$"}', "^hits$"),
        ('{a!="",__name__=~"^hits$"}', "hits"),
        ('{__name__=~"hits"}', "hits"),
        ('{__name__=~"hits|misses"}', None),
        ('{__name__=~"^hits.*"}', None),
        ('{__name__!="hits",a="b"}', None),
        ('{a="b"}', None),
        ("sum(hits)", None),
        ("hits{", None),
        ("", None),
    ],
)
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


@pytest.mark.parametrize(
    ("query", "name", "takes"),
    [
        ("hits", "hits", True),
        ("hits", "misses", False),
        ('{a!=""}', "hits", True),
        ('{__name__=~"^hi.*",a!=""}', "hits", True),
        ('{__name__=~"^hi"}', "hits", False),
        ('{__name__!~"^hi.*",a!=""}', "hits", False),
        ('{__name__!="hits",a!=""}', "misses", True),
        ('{__name__="hits"}', "hits", True),
        ("{", "hits", False),
    ],
)
def test_may_name(query: str, name: str, *, takes: bool) -> None:
    assert preview.may_name(query, name) is takes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sum(x)", "it is an expression, not a selector of series"),
        ("x{", "unexpected end of input inside braces"),
    ],
)
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
    assert pods.separability.separable
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


@pytest.mark.parametrize(
    ("rule", "path", "fault"),
    [
        (
            f"resources: {{overrides: {{pod: {{resource: pod}}}}}}, {SUM}",
            "resources",
            "no generic resource label form specified for this metric",
        ),
        (
            f"{POD}, metricsQuery: '<<if false>>x<<end>>'",
            "metricsQuery",
            "empty query produced by metrics query template",
        ),
    ],
    ids=["no label", "no query"],
)
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
