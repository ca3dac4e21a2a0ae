import pytest

from adapter.config import rules_file
from adapter.errors import NamingError, TemplateError
from adapter.model.resources import BUILTIN
from adapter.rules.compile import Ruleset, compile_rules
from adapter.rules.resource import NODES, PODS
from adapter.rules.scrape.scraped_query import PodLabels
from tests.support.answers import answers
from tests.support.world import compile_rule, compile_text


def faults_of(text: str) -> tuple[Ruleset, list[str]]:
    parsed = rules_file.parse_rules(text, "rules.yaml")
    assert not parsed.fatal
    assert not parsed.faults
    ruleset, faults = compile_rules(parsed.config, BUILTIN)
    return ruleset, [str(fault) for fault in faults]


@pytest.mark.parametrize(("rule", "expected"), answers("rules/compile", "faults"))
@pytest.mark.parametrize("section", ["rules", "externalRules"])
def test_faults(section: str, rule: str, expected: list[str]) -> None:
    ruleset, faults = faults_of(f"{section}:\n- {{seriesQuery: good, metricsQuery: good}}\n- {rule}\n")
    assert len(faults) == len(expected)
    for fault, part in zip(faults, expected, strict=True):
        assert fault.startswith(f"rules.yaml:3: {section}[1].{part}")
    assert [rule.config.path for rule in (*ruleset.custom, *ruleset.external)] == [f"{section}[0]"]


RESOURCE_RULES = """
resourceRules:
  cpu:
    containerQuery: 'sum by (<<.GroupBy>>) (cpu{<<.LabelMatchers>>})'
    nodeQuery: 'sum by (<<.GroupBy>>) (cpu{<<.LabelMatchers>>})'
    resources: {overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}}
    containerLabel: container
  memory: {containerQuery: memory, resources: {template: 'kube_<<.Resource>>'}, containerLabel: c}
  window: 2m
"""


def test_resource_rules() -> None:
    rules = compile_text(RESOURCE_RULES).resource
    assert rules is not None
    assert rules.window == 120
    containers, nodes = rules.pair(PODS), rules.pair(NODES)
    assert [query.path for pair in (containers, nodes) for query in pair] == [
        "resourceRules.cpu.containerQuery",
        "resourceRules.memory.containerQuery",
        "resourceRules.cpu.nodeQuery",
        "resourceRules.memory.nodeQuery",
    ]
    assert containers.cpu.metric_query(PODS).render("ns", ["a", "b"]) == (
        'sum by (pod,container) (cpu{namespace="ns",pod=~"a|b"})'
    )
    assert nodes.cpu.metric_query(NODES).render(None, ["a"]) == 'sum by (node) (cpu{node="a"})'
    of_memory = containers.memory.metric_query(PODS)
    assert (of_memory.namespace_label, of_memory.object_label, of_memory.part_label) == (
        "kube_namespace",
        "kube_pod",
        "c",
    )
    assert not containers.cpu.metric_query(PODS).separability.reason
    assert of_memory.separability.reason
    with pytest.raises(TemplateError, match="empty query"):
        nodes.memory.metric_query(NODES).render(None, ["a"])


def test_resource_rules_are_usable_as_a_whole() -> None:
    assert compile_text("").resource is None
    for change in (
        ("cpu{<<", "cpu{<<<"),
        ("containerQuery: memory", "nodeQuery: '<<'"),
        ("kube_<<.Resource>>", "x"),
    ):
        ruleset, faults = faults_of(RESOURCE_RULES.replace(*change))
        assert ruleset.resource is None
        assert faults


def test_a_resource_rule_that_names_no_label() -> None:
    rules = compile_text("resourceRules: {cpu: {}, memory: {}}").resource
    assert rules is not None
    assert rules.window == 0
    with pytest.raises(NamingError):
        rules.containers.cpu.metric_query(PODS)


def test_faults_of_resource_rules_have_their_place() -> None:
    _, faults = faults_of(
        """
resourceRules:
  cpu: {containerQuery: '<<', resources: {overrides: {p: {resource: apps}}}}
  memory: {nodeQuery: '<<end>>'}
"""
    )
    assert [fault.partition(": expected")[0] for fault in faults] == [
        "rules.yaml:3: resourceRules.cpu.resources.overrides.p: apps",
        "rules.yaml:3: resourceRules.cpu.containerQuery: <<",
        "rules.yaml:4: resourceRules.memory.nodeQuery: <<end>>",
    ]


def test_order_and_distinct_selectors() -> None:
    ruleset = compile_text(
        """
rules: [{seriesQuery: b}, {seriesQuery: a}, {seriesQuery: b}]
externalRules: [{seriesQuery: c}, {seriesQuery: a}]
"""
    )
    assert ruleset.selectors() == ("b", "a", "c")
    assert [rule.path for rule in ruleset.custom] == ["rules[0]", "rules[1]", "rules[2]"]


def test_a_rule_that_is_written_as_before_is_the_same() -> None:
    """So that what was answered to its questions still is.

    One that changed in anything, its place included, is another.
    """
    text = "rules:\n- seriesQuery: a\n- seriesQuery: b\nexternalRules:\n- seriesQuery: c\n"
    known, _ = faults_of(text)
    changed = rules_file.parse_rules(text.replace("seriesQuery: b", "seriesQuery: d"), "rules.yaml").config
    now, faults = compile_rules(changed, BUILTIN, known)
    assert not faults
    assert now.custom[0] is known.custom[0]
    assert now.custom[1] is not known.custom[1]
    assert now.external[0] is known.external[0]
    elsewhere, _ = compile_rules(rules_file.parse_rules(text, "other.yaml").config, BUILTIN, known)
    assert not set(elsewhere.custom) & set(known.custom)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [("90s", "90s", True), ("90s", "60s", False), ("90s", None, False), (None, "90s", False)],
)
def test_resource_rules_that_are_written_as_before_are_the_same(
    before: str | None, after: str | None, *, same: bool
) -> None:
    def compiled(window: str | None, known: Ruleset | None) -> Ruleset:
        text = RESOURCE_RULES.replace("2m", window) if window else ""
        ruleset, faults = compile_rules(rules_file.parse_rules(text, "rules.yaml").config, BUILTIN, known)
        assert not faults
        return ruleset

    known = compiled(before, None)
    now = compiled(after, known)
    assert (now.resource is known.resource) == same
    assert (now.resource is None) == (after is None)


def test_rules_are_never_equal() -> None:
    text = "rules: [{seriesQuery: a}]"
    assert compile_rule(text) != compile_rule(text)


def test_age() -> None:
    rule = compile_rule("rules: [{seriesQuery: a, metricsQuery: b, maxSampleAge: 15s}]")
    assert rule.age.render("hits", [], ["pod"]) == "min(timestamp(hits{})) by (pod)"
    assert not rule.age.separability("pod", "namespace").reason


def test_separability_is_worked_out_once() -> None:
    rule = compile_rule(
        "rules: [{seriesQuery: a, metricsQuery: 'sum(x{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}]"
    )
    assert rule.separability("pod", "namespace") is rule.separability("pod", "namespace")
    assert rule.separability("pod", "namespace") != rule.separability("service", "namespace")


SCRAPED = """
  scrape: {port: metrics}
  resources: {template: '<<.Resource>>'}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def test_a_scraped_rule_has_a_query_for_one_pod() -> None:
    rule = compile_rule(f"rules:\n- seriesQuery: a{SCRAPED}")

    assert rule.scraped is not None
    assert rule.scraped.pod == PodLabels("pod", "namespace")
    assert rule.scraped.series_names("hits") == {"hits"}
    assert compile_rule("rules: [{seriesQuery: a, metricsQuery: b}]").scraped is None


def test_a_scraped_rule_needs_no_namespaces() -> None:
    text = SCRAPED.replace("template: '<<.Resource>>'", "overrides: {p: {resource: pod}}")

    rule = compile_rule(f"rules:\n- seriesQuery: a{text}")

    assert rule.scraped is not None
    assert rule.scraped.pod == PodLabels("p", "")


@pytest.mark.parametrize(("section", "rule", "said"), answers("rules/compile", "cannot be scraped"))
def test_a_rule_that_cannot_be_scraped_is_left_out(section: str, rule: str, said: str) -> None:
    ruleset, faults = faults_of(f"{section}:\n- seriesQuery: a{rule}")

    assert (ruleset.custom, ruleset.external) == ((), ())
    assert faults == [f"rules.yaml:{said}"]


ENDPOINTS = """
  scrape: {port: metrics, service: {namespace: queues, name: exporter}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
PICKED = ENDPOINTS.replace(
    "service: {namespace: queues, name: exporter}", "pods: {namespace: a, selector: b}"
)


@pytest.mark.parametrize(
    "query",
    ["depth", "depth{queue!=''}", "{__name__='depth'}", "{queue!='',__name__='depth'}", "  depth{}  "],
)
def test_an_external_rule_that_is_scraped_names_its_series(query: str) -> None:
    rule = compile_rule(f'externalRules:\n- seriesQuery: "{query}"{ENDPOINTS}')

    assert rule.named_series == "depth"
    assert rule.scraped is not None
    assert rule.scraped.pod is None
    plain = compile_rule("externalRules: [{seriesQuery: a, metricsQuery: b}]")
    assert (plain.scraped, plain.named_series) == (None, "")


_NAMED = (
    "expected the name of one series, such as queue_depth{...}: endpoints are scraped for it before "
    "Prometheus has seen it"
)


@pytest.mark.parametrize("query", answers("rules/compile", "no series"))
def test_one_that_names_no_series_is_left_out(query: str) -> None:
    ruleset, faults = faults_of(f'externalRules:\n- seriesQuery: "{query}"{ENDPOINTS}')

    assert ruleset.external == ()
    assert faults == [f"rules.yaml:2: externalRules[0].seriesQuery: {query}: {_NAMED}"]


def test_an_external_rule_with_a_query_that_cannot_be_evaluated_is_left_out() -> None:
    text = f"externalRules:\n- seriesQuery: depth{ENDPOINTS.replace('sum(', 'stddev(')}"
    query = "stddev(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    expected = "expected a query that scrape can evaluate: stddev is not one of sum, max, min, avg, count"

    assert faults_of(text)[1] == [f"rules.yaml:4: externalRules[0].metricsQuery: {query}: {expected}"]


def test_pods_have_no_job() -> None:
    def faults(text: str) -> list[str]:
        return faults_of(
            f"externalRules:\n- seriesQuery: depth{text.replace('by (<<.GroupBy>>)', 'by (job)')}"
        )[1]

    assert faults(ENDPOINTS) == []
    (fault,) = faults(PICKED)
    assert fault.endswith("it groups or matches by job, which the scraped pods do not have")


USAGES = """
resourceRules:
  cpu: {scrape: {port: metrics}}
"""


def test_usages_that_are_only_scraped() -> None:
    ruleset = compile_text(USAGES)

    assert ruleset.resource is None
    assert ruleset.usage is not None
    assert ruleset.usage.rule.path == "resourceRules.cpu.scrape"
    cpu = ruleset.usage.rule.scraped
    assert cpu is not None
    assert (cpu.counts, cpu.series_names("")) == (True, frozenset({"process_cpu_seconds_total"}))


def test_an_unchanged_usage_keeps_its_identity() -> None:
    """What was scraped for it stays."""
    before = compile_text(USAGES)
    after, _ = compile_rules(rules_file.parse_rules(USAGES, "rules.yaml").config, BUILTIN, before)

    assert before.usage is not None
    assert after.usage is not None
    assert after.usage.rule is before.usage.rule


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sum(x{<<.LabelMatchers>>})", "resourceRules.cpu.scrape.query: sum(x"),
        ("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "expected the name of a series"),
    ],
)
def test_a_usage_that_one_pod_cannot_answer_is_refused(query: str, said: str) -> None:
    ruleset, (fault,) = faults_of(f"resourceRules: {{cpu: {{scrape: {{port: metrics, query: '{query}'}}}}}}")

    assert ruleset.usage is None
    assert said in fault
