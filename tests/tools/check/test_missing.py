"""Metrics whose series cannot be read; `tests/golden/check/why-*` has every other cause of an absent one."""

from collections.abc import Mapping, Sequence

from adapter.errors import PrometheusError
from adapter.model import steps
from adapter.model.metrics import SeriesInfo
from adapter.rules import registry
from fastpath_tools.check import missing
from fastpath_tools.check.missing import MissingCase
from tests.support.world import compile_text, series

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}, metricsQuery: x"
FAILED = PrometheusError("timeout", "too slow")
Known = Mapping[str, Sequence[SeriesInfo] | PrometheusError]


def sentence(rules: str, metric: str, known: Known, probes: Known | None = None) -> str:
    """Return what is said of a metric, given the series of each selector and of each name.

    What is not given is empty.
    """
    ruleset = compile_text(rules)
    lists = {selector: _list(known.get(selector, ())) for selector in ruleset.selectors()}
    traces = missing.trace_rules(ruleset, lists, metric)
    memory: dict[str, tuple[registry.KnownSeries, ...]] = {}
    for selector, answer in lists.items():
        if not isinstance(answer, PrometheusError):
            memory = steps.run(registry.remembering(memory, selector, answer))
    names = missing.probe_names(metric, traces)
    found = {name: _list((probes or {}).get(name, ())) for name in names}
    assert set(probes or {}) <= set(names)
    return missing.explain(
        MissingCase(metric, traces, found, steps.run(registry.building(ruleset, memory, 1)), (), "10m0s")
    )


def _list(answer: Sequence[SeriesInfo] | PrometheusError) -> tuple[SeriesInfo, ...] | PrometheusError:
    return answer if isinstance(answer, PrometheusError) else tuple(answer)


def seen(name: str, *labels: str) -> tuple[SeriesInfo, ...]:
    return series({"__name__": name, **dict.fromkeys(labels, "x")})


def test_no_list_could_be_read() -> None:
    rules = f"rules: [{{seriesQuery: a, {POD}}}, {{seriesQuery: b, {POD}}}]"
    assert sentence(rules, "hits", {"a": FAILED, "b": FAILED}) == (
        "no series could be read (too slow): check the address of Prometheus, and that it is up"
    )


def test_one_list_could_not_be_read() -> None:
    named = f"{{seriesQuery: a, name: {{as: x}}, {POD}}}"
    rules = f"rules: [{named}, {{seriesQuery: b, {POD}}}, {{seriesQuery: c, {POD}}}]"
    assert sentence(rules, "hits", {"a": FAILED, "b": FAILED}) == (
        "the series of rules[1] could not be read (too slow): fix its seriesQuery or the connection"
    )


def test_a_series_that_may_be_gone() -> None:
    said = sentence(f"rules: [{{seriesQuery: hits, {POD}}}]", "hits", {}, {"hits": FAILED})
    assert said.startswith("rules[0] makes hits of hits, and Prometheus has had no such series in the last")


def test_probe_names() -> None:
    rules = compile_text(
        f"rules: [{{seriesQuery: a_total, name: {{matches: '(.*)_total'}}, {POD}}}, {{seriesQuery: "
        f"'a{{x=\"\"}}', {POD}}}, {{seriesQuery: b, {POD}}}]"
    )
    lists = dict[str, tuple[SeriesInfo, ...]].fromkeys(rules.selectors(), ())
    assert missing.probe_names("a", missing.trace_rules(rules, lists, "a")) == ("a", "a_total")
    full = {**lists, "a_total": seen("a_total")}
    assert missing.probe_names("a", missing.trace_rules(rules, full, "a")) == ("a",)
