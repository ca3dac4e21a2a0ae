"""Answers of the provider as data: `transcripts/NAME` has worlds, and what questions are answered in each.

A world is YAML above `---`:

- `series` has the series of each series query.
- `rules` are as in a rules file. Without them there are two rules for the series of `s`, a custom and an
  external one; `more` is added to both. With `usages` the rules are those of cpu and memory.
- `samples` are what Prometheus answers to every query, or to those of each metric; a text is a failure.
  `ages` are their ages. `warnings` says which answers come with a warning, or names a metric.
- `names` are the objects that are listed, or why they cannot be. `pods` and `nodes` have a namespace, a name
  and labels.
- `keeps` has answers kept from question to question. Elsewhere a minute passes before each.

A line after `? ` is a question: an API and a path. With `scaler` before it, the scaler asks. Below it are the
objects that are listed, the queries to Prometheus, what is left out, and the values, or the Status that
refuses the question. After `> ` a key and a value change the world, or it waits for seconds; `> log` shows
what was logged since. At the end are the active faults. A line `===` begins another world.
`scripts/test tests/provider --update` writes what is answered now.
"""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.errors import KubernetesError, NotSyncedError, PrometheusError, StatusError
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.model import metrics
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from adapter.server.api.query_string import Question
from tests.support.scripts import Recorded
from tests.support.world import (
    FakeResources,
    Outcome,
    RulesWorld,
    compile_text,
    question,
    series,
    vector,
    world,
)

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").iterdir())

# What is served beside the built-in kinds: one that cannot be listed, and one whose plural core has too.
REVIEW = APIResource(
    "r.io", "v1", "reviews", "review", "Review", False, frozenset({"create"}), preferred=True
)
POD_METRICS = APIResource(
    "metrics.k8s.io", "v1beta1", "pods", "podmetrics", "PodMetrics", True, REVIEW.verbs, True
)
CATALOGUE = Catalogue([*BUILTIN, REVIEW, POD_METRICS])
SUM = "sum(<<.Series>>{<<.LabelMatchers>>})"
RULES = {
    "rules": {"resources": {"template": "<<.Resource>>"}, "metricsQuery": f"{SUM} by (<<.GroupBy>>)"},
    "externalRules": {"resources": {"namespaced": False}, "metricsQuery": f"{SUM} by (q)"},
}
REASONS = ("stale", "nan", "infinite", "histogram", "overflow", "negative", "incomplete", "duplicate")


def usage_of(kind: str) -> dict[str, Any]:
    labels = ("node", "namespace", "pod")
    return {
        "containerQuery": f"sum({kind}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)",
        "nodeQuery": f"sum(node_{kind}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)",
        "resources": {"overrides": {label: {"resource": label} for label in labels}},
        "containerLabel": "container",
    }


def rules_of(settings: dict[str, Any]) -> str:
    if "usages" in settings:
        both = {kind: usage_of(kind) | settings["usages"].get(kind, {}) for kind in ("cpu", "memory")}
        return yaml.safe_dump({"resourceRules": both | settings.get("more", {})})
    more = {"seriesQuery": "s"} | settings.get("more", {})
    both = {section: [rule | more] for section, rule in RULES.items()}
    return yaml.safe_dump(settings.get("rules", both))


def outcome(settings: dict[str, Any], promql: str, now: float) -> Outcome:
    """Return what Prometheus answers."""
    is_age = "timestamp" in promql
    found = settings.get("ages" if is_age else "samples", [])
    if isinstance(found, dict):
        found = next((each for metric, each in found.items() if metric in promql), [])
    if isinstance(found, str):
        kind, text = found.split(": ", 1)
        kind, _, result_type = kind.partition("/")
        return PrometheusError(kind, text, result_type)
    values = {"histogram": metrics.HISTOGRAM}
    samples = ((labels, values.get(value) or float(value) + is_age * now) for labels, value in found)
    warnings = settings.get("warnings", "none")
    warned = warnings in {"all", "ages" if is_age else "samples"} or (warnings in promql and not is_age)
    return vector(*samples)._replace(warnings=("store away",) if warned else ())


def describe(found: metrics.ObjectReference) -> str:
    return f"{found.kind} {found.namespace}/{found.name} of {found.api_version}"


async def answer(here: RulesWorld, asked: Question) -> list[str]:
    if isinstance(asked, metrics.CustomQuestion):
        items = (await here.provider.custom(asked)).items
        return [f"{describe(item.described)} {item.milli}m" for item in items]
    if isinstance(asked, metrics.ExternalQuestion):
        found = (await here.provider.external(asked)).items
        return [f"{dict(item.labels or {})} {item.milli}m" for item in found]
    usages = (await here.resource_provider.resource(asked)).items
    return [f"{each.namespace}/{each.name} {each.usage}" for each in usages]


async def answer_scaler(here: RulesWorld, asked: Question, names: tuple[str, ...]) -> list[str]:
    now = here.clock.wall()
    if isinstance(asked, metrics.CustomQuestion):
        objects = await here.scaler.sample_objects(asked, names, 0.5)
        if objects is None:
            return ["unknown"]
        times = {name: time - now for name, time in sorted(objects.sampled.items())}
        facts = (objects.lookback, objects.oldest, objects.overdue, objects.merges, objects.crosses)
        return [f"{dict(objects.items)} at {times}", " ".join(map(str, facts))]
    if isinstance(asked, metrics.ResourceQuestion):
        found = await here.resource_provider.resource(asked, ttl=0.0)
        ages = {name: time - now for name, time in sorted((found.times or {}).items())}
        told = [f"{each.namespace}/{each.name} {each.usage}" for each in found.items]
        return [*told, f"at {ages}{' partial' * found.partial}{' stands in' * found.stands_in}"]
    sums = await here.scaler.sample_series(asked, 0.5)
    if sums is None:
        return ["unknown"]
    time = sums.sampled[""] - now if sums.sampled else None
    return [
        f"{tuple(item.milli for item in sums.items)} at {time}",
        f"{sums.lookback} {sums.oldest} {sums.overdue}".rstrip(),
    ]


def dropped(here: RulesWorld) -> list[float]:
    return [here.metric("fastpath_values_dropped_total", reason=reason) for reason in REASONS]


def names_of(settings: dict[str, Any]) -> tuple[str, ...] | Exception:
    names = settings.get("names", ())
    if isinstance(names, str):
        return NotSyncedError(names) if names == "pods" else KubernetesError(403, names, "no")
    return tuple(names)


async def ask(here: RulesWorld, text: str, settings: dict[str, Any]) -> Iterator[str]:
    """Return what becomes of a question, in lines."""
    asked = question(*text.removeprefix("scaler ").split(" ", 1))
    here.names.asked.clear()
    here.querier.asked.clear()
    here.clock.advance(0 if "keeps" in settings else 60)
    names = tuple(settings.get("names", ()))
    before = dropped(here)
    try:
        scaler = text.startswith("scaler ")
        values = await (answer_scaler(here, asked, names) if scaler else answer(here, asked))
    except StatusError as error:
        values = [f"{error.code} {error.reason or '-'}: {error.message}"]
        values += [f"details {error.details}"] if error.details else []
    listed = [f"lists {' '.join(map(str, each))}".rstrip() for each in here.names.asked]
    queries = [f"asks {promql}" for promql in here.querier.asked]
    lost = zip(REASONS, before, dropped(here), strict=True)
    left_out = [f"leaves out {after - then:.0f} {reason}" for reason, then, after in lost if after > then]
    return iter([*listed, *queries, *left_out, *(values or ["nothing"])])


def happen(here: RulesWorld, settings: dict[str, Any], text: str, log: pytest.LogCaptureFixture) -> list[str]:
    """Let something change; return what is said of it."""
    key, _, value = text.partition(" ")
    if key == "wait":
        here.clock.advance(float(value))
    elif key == "log":
        records, said = log.records, ("query", "error", "subject")
        facts = [(record.message, vars(record).get("facts", {})) for record in records]
        lines = [
            [message, *(f"{name}={known[name]}" for name in said if name in known)]
            for message, known in facts
        ]
        log.clear()
        return [f"log {', '.join(line)}" for line in lines]
    else:
        settings[key] = yaml.safe_load(value)
        here.names.names_or_error = names_of(settings)
    return []


async def run(settings: dict[str, Any], lines: list[str], log: pytest.LogCaptureFixture) -> Iterator[str]:
    said: list[str] = []
    log.clear()
    async with world(
        compile_text(rules_of(settings), CATALOGUE),
        lists={key: series(*each) for key, each in settings.get("series", {}).items()},
        names=names_of(settings),
        running=[LabeledObject(*each) for each in settings.get("pods", [])],
        nodes=[LabeledObject(*each) for each in settings.get("nodes", [])],
        resources=FakeResources(CATALOGUE),
    ) as here:
        here.querier.answer = lambda promql: outcome(settings, promql, here.clock.wall())
        for line in lines:
            said += [line, *(await ask(here, line[2:], settings) if line.startswith("? ") else ())]
            said += happen(here, settings, line[2:], log) if line.startswith("> ") else []
        faults = sorted(here.faults.active().items())
        said += [f"fault {' '.join(key)}: {text}" for key, text in faults if "no-series" not in key]
    return iter(said)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_transcript(path: Path, recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    worlds = []
    for text in path.read_text().split("===\n"):
        settings, separator, expected = text.partition("---\n")
        lines = [line for line in expected.splitlines() if line.startswith(("? ", "> ", "#"))]
        said = asyncio.run(run(yaml.safe_load(settings), lines, caplog))
        worlds.append(settings + separator + "".join(f"{line}\n" for line in said))
    recorded(path, "===\n".join(worlds))
