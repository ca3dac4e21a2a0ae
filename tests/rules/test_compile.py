import pytest

from adapter.config import rules_file
from adapter.errors import NamingError, TemplateError
from adapter.model.objects.resources import BUILTIN
from adapter.rules.compile import EMPTY, Ruleset, compile_rules
from adapter.rules.resource import NODES, PODS
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
    assert rules.config.window == 120
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


def test_a_resource_rule_that_names_no_label() -> None:
    rules = compile_text("resourceRules: {cpu: {}, memory: {}}").resource
    assert rules is not None
    assert rules.config.window == 0
    with pytest.raises(NamingError):
        rules.containers.cpu.metric_query(PODS)


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
    def compiled(window: str | None, known: Ruleset = EMPTY) -> Ruleset:
        text = RESOURCE_RULES.replace("2m", window) if window else ""
        ruleset, faults = compile_rules(rules_file.parse_rules(text, "rules.yaml").config, BUILTIN, known)
        assert not faults
        return ruleset

    known = compiled(before)
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


@pytest.mark.parametrize(("section", "rule", "said"), answers("rules/compile", "cannot be scraped"))
def test_a_rule_that_cannot_be_scraped_is_left_out(section: str, rule: str, said: str) -> None:
    ruleset, faults = faults_of(f"{section}:\n- seriesQuery: a{rule}")

    assert (ruleset.custom, ruleset.external) == ((), ())
    assert faults == [f"rules.yaml:{said}"]


ENDPOINTS = """
  scrape: {port: metrics, service: {namespace: queues, name: exporter}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


_NAMED = (
    "expected the name of one series, such as queue_depth{...}: endpoints are scraped for it before "
    "Prometheus has seen it"
)


@pytest.mark.parametrize("query", answers("rules/compile", "no series"))
def test_one_that_names_no_series_is_left_out(query: str) -> None:
    ruleset, faults = faults_of(f'externalRules:\n- seriesQuery: "{query}"{ENDPOINTS}')

    assert ruleset.external == ()
    assert faults == [f"rules.yaml:2: externalRules[0].seriesQuery: {query}: {_NAMED}"]


USAGES = """
resourceRules:
  cpu: {scrape: {port: metrics}}
"""


def test_an_unchanged_usage_keeps_its_identity() -> None:
    """What was scraped for it stays."""
    before = compile_text(USAGES)
    after, _ = compile_rules(rules_file.parse_rules(USAGES, "rules.yaml").config, BUILTIN, before)

    assert before.usage is not None
    assert after.usage is not None
    assert after.usage.rule is before.usage.rule
