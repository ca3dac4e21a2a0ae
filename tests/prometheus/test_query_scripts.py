"""The query cache over time as data: `scripts/queries` has what happens, which queries it causes, and who is
answered.

A line after `> ` has what happens at one moment, separated by semicolons:

- `ask NAMESPACE/NAMES` asks for objects of a metric, `ask "TEXT"` for a query by its text, and `ask @` for
  one of them: a script with `@` is run for a text and for a pod, with the same words. Behind it are
  `of=COUNT`, how many objects the metric has, `by=METRIC`, `fresh=TTL/MAX`, `ahead=TTL/MAX` to refresh ahead,
  `partial`, where a partial answer is taken, and `accept`, where the rule of a text accepts warnings.
- `answer NUMBER SAMPLES` answers a query: `POD=VALUE`, `NAMESPACE/POD=VALUE`, `!KIND` for a failure, `warned`
  for a warning; without samples, with every object that the query names. `always SAMPLES` answers all at
  once, `hold` none.
- `wait SECONDS`, `cancel QUESTION`, `close`, `turn` of the loop, and `limit NAME VALUE` of a constant.
- `busy` makes a batch busy: two objects were asked for, a query of a third is answered, and a fourth is asked
  for.

Below it are the queries that are sent, and the questions that end. At the end are the counts of the process.
`scripts/test tests/prometheus --update` writes what happens now.
"""

import asyncio
import functools
from pathlib import Path

import pytest

from adapter.errors import PrometheusError
from adapter.prometheus import batching, query_cache
from adapter.prometheus.answers import Freshness, ObjectAnswer, TextAnswer, refresh_ahead
from adapter.rules.query import MetricQuery
from tests.prometheus.stories import HALF, TOP, AskedCache, metric_query, named_objects, of_metric
from tests.support.scripts import Scripts
from tests.support.world import Outcome, compile_rule, scalar, vector

SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "queries")
BUSY = ("always; ask a/p{}", "wait 1.1; ask b/q{}", "wait 1.1; hold; ask a/s{}", "answer 2; ask a/t{}")
COUNTED = {
    "fastpath_responses_total": "answered",
    "fastpath_prometheus_queries_total": "queries",
    "fastpath_values_dropped_total": "dropped",
    "fastpath_cache_evictions_total": "evicted",
}
AT_ONCE = {"texts": "x", "objects": 'sum(x{ns="a",pod="p"}) by (pod)'}
ACCEPTING = """
rules:
- seriesQuery: x
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  onWarnings: accept
"""


def outcome(words: list[str], promql: str) -> Outcome:
    """Return what Prometheus answers to a query, in the words of a script."""
    if words and words[0].startswith("!"):
        return PrometheusError(words[0][1:], "made up")
    if words and words[0] == "scalar":
        return scalar(1.0)
    samples = [word for word in words if "=" in word]
    found = vector(*map(sample, samples)) if samples or "empty" in words else named_objects(promql)
    return found._replace(warnings=("store away",)) if "warned" in words else found


def sample(word: str) -> tuple[dict[str, str], float]:
    """Read `POD=VALUE`; a namespace goes before the pod, and another label `le` behind it."""
    where, _, value = word.rpartition("=")
    where, _, le = where.partition("+")
    namespace, _, name = where.rpartition("/")
    labels = {"ns": namespace, "pod": name, "le": le}
    return {label: text for label, text in labels.items() if text}, float(value)


class QueryScript:
    """A story, its questions in order, and what is said of them."""

    def __init__(self, kind: str, patch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        self.patch = patch
        self.story = AskedCache()
        self.said: list[str] = []
        self.asked: list[tuple[str, asyncio.Task[object]]] = []
        self.sent = 0
        plain = self.story.query
        self.metrics = {
            "": plain,
            "code": metric_query(selector="code=x"),
            "second": metric_query(),
            "top": metric_query(TOP),
            "half": metric_query(HALF),
            "global": metric_query(namespace_label=""),
            "accepting": MetricQuery(compile_rule(ACCEPTING), "x", (), "ns", "pod"),
        }

    def metric(self, name: str) -> MetricQuery:
        return self.metrics.setdefault(name, of_metric(self.story.query, name))

    def ask(self, what: str, options: dict[str, str]) -> None:
        freshness = Freshness(1.0, 30.0)
        for word, made in (("fresh", Freshness), ("ahead", refresh_ahead)):
            if word in options:
                freshness = made(*map(float, (options[word] or "1/30").split("/")))
        partial = "partial" in options
        meant = {"texts": '"x"', "objects": "a/p"}[self.kind] if what == "@" else what
        if meant.startswith('"'):
            accepts = "accept" in options
            asking = self.story.text(
                meant.strip('"'), freshness, takes_partial=partial, accepts_warnings=accepts
            )
        else:
            namespace, names = meant.split("/")
            asking = self.story.objects(
                namespace or None,
                *names.split(","),
                query=self.metric(options.get("by", "")),
                expected=int(options.get("of", 0)),
                freshness=freshness,
                takes_partial=partial,
            )
        self.asked.append((what, asking))

    async def happen(self, what: str) -> None:
        story = self.story
        match what.split():
            case ["ask", question, *options]:
                self.ask(
                    question, {name: value for name, _, value in (word.partition("=") for word in options)}
                )
            case ["answer", number, *words]:
                sent = story.prometheus.asked[int(number)]
                story.prometheus.release(int(number), outcome(words, sent))
            case ["always" | "hold" as verb, *words]:
                answered = functools.partial(outcome, words)
                story.prometheus.reply = answered if verb == "always" else None
            case ["wait", seconds]:
                story.clock.advance(float(seconds))
            case ["cancel", question]:
                next(task for name, task in self.asked if name == question).cancel()
            case ["limit", name, value]:
                module = query_cache if hasattr(query_cache, name) else batching
                self.patch.setattr(module, name, int(value))
                if not story.prometheus.asked:
                    story.renew()
            case ["close"]:
                await story.cache.__aexit__(None, None, None)
            case ["turn"]:
                await asyncio.sleep(0)
            case _:
                raise ValueError(what)

    async def line(self, text: str) -> None:
        verb, _, options = text.partition(" ")
        if verb == "busy":
            for each in BUSY:
                await self.line(each.format(options and f" {options}"))
            return
        for what in text.split("; "):
            await self.happen(what)
        await self.story.settle()
        for promql in self.story.prometheus.asked[self.sent :]:
            here = "@" if promql == AT_ONCE.get(self.kind) else promql
            self.said.append(f"query {self.sent}: {here}")
            self.sent += 1
        done = [(question, task) for question, task in self.asked if task.done()]
        self.said += [f"{question}: {self.result(task)}" for question, task in done]
        self.asked = [(question, task) for question, task in self.asked if not task.done()]

    def result(self, task: asyncio.Task[object]) -> str:
        if task.cancelled():
            return "cancelled"
        answer = task.result()
        if isinstance(answer, PrometheusError):
            return f"fails: {answer.kind}"
        assert isinstance(answer, TextAnswer | ObjectAnswer)
        if isinstance(answer, TextAnswer):
            values = [f"{each.value:g}" for each in answer.result.samples]
        else:
            names = answer.samples.items()
            values = [f"{'' if self.kind else f'{name}='}{found[-1].value:g}" for name, found in names]
        said = " ".join(values) or "nothing"
        if age := self.story.clock.monotonic() - answer.asked:
            said += f", {age:.4g} s old"
        if answer.failure is not None:
            said += f", for {answer.failure.kind}"
        return f"{said}, partial" if answer.partial is not None else said

    def counts(self) -> list[str]:
        counted: dict[str, list[str]] = {}
        for metric in self.story.monitoring.registry.collect():
            for each in metric.samples:
                if each.value and (what := COUNTED.get(each.name)):
                    counted.setdefault(what, []).append(f"{' '.join(each.labels.values())} {each.value:g}")
        if self.kind:
            counted.pop("evicted", None)
        return [f"{what}: {', '.join(sorted(counts))}" for what, counts in counted.items()]


async def run(lines: list[str], kind: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        script = QueryScript(kind, patch)
        try:
            for line in lines:
                script.said.append(f"> {line}")
                await script.line(line)
        finally:
            await script.story.end()
    return [*script.said, *script.counts()]


@pytest.mark.parametrize("title", SCRIPTS.titles)
def test_script(title: str, pytestconfig: pytest.Config) -> None:
    lines = SCRIPTS.lines(title)
    kinds = ("texts", "objects") if any(" @" in line for line in lines) else ("",)
    said, *others = [asyncio.run(run(lines, kind)) for kind in kinds]
    assert others in ([], [said]), "a text and objects differ"
    SCRIPTS.check(title, said, pytestconfig)
