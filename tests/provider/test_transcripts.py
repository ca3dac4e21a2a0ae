"""Answers of the provider as data: `transcripts/NAME` has a world, and what questions are answered in it.

Above `---` is YAML: `rules` as in a file of them, the `series` of each series query, the `samples` with which
Prometheus answers every query, the `names` of listed objects, `pods` and `nodes` with namespace, name and
labels. Each line after `? ` is a question: an API and a path. Below it are
what is listed, what Prometheus is asked, and each object or series with its value, or the Status that refuses
the question. `scripts/test tests/provider --update` writes what is answered now.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.errors import StatusError
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.model.metrics import CustomQuestion, ExternalQuestion, ObjectReference
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from tests.support.world import FakeResources, World, compile_text, question, series, vector, world

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").iterdir())

# What is served beside the built-in kinds: one that cannot be listed, and one whose plural core has too.
REVIEW = APIResource(
    "r.io", "v1", "reviews", "review", "Review", False, frozenset({"create"}), preferred=True
)
POD_METRICS = APIResource(
    "metrics.k8s.io", "v1beta1", "pods", "podmetrics", "PodMetrics", True, REVIEW.verbs, True
)
CATALOGUE = Catalogue([*BUILTIN, REVIEW, POD_METRICS])


def describe(found: ObjectReference) -> str:
    return f"{found.kind} {found.namespace}/{found.name} of {found.api_version}"


async def ask(here: World, text: str) -> Iterator[str]:
    """Return what becomes of a question, in lines."""
    asked = question(*text.split(" ", 1))
    here.names.asked.clear()
    here.querier.asked.clear()
    here.clock.advance(60)  # no answer is kept
    try:
        if isinstance(asked, CustomQuestion):
            items = (await here.provider.custom(asked)).items
            values = [f"{describe(item.described)} {item.milli}m" for item in items]
        elif isinstance(asked, ExternalQuestion):
            series_ = (await here.provider.external(asked)).items
            values = [f"{dict(item.labels or {})} {item.milli}m" for item in series_]
        else:
            usages = (await here.resource_provider.resource(asked)).items
            values = [f"{each.namespace}/{each.name} {each.usage}" for each in usages]
    except StatusError as error:
        values = [f"{error.code} {error.reason or '-'}: {error.message}"]
        values += [f"details {error.details}"] if error.details else []
    listed = [f"lists {' '.join(map(str, each))}".rstrip() for each in here.names.asked]
    return iter([*listed, *(f"asks {promql}" for promql in here.querier.asked), *(values or ["nothing"])])


async def run(settings: dict[str, Any], lines: list[str]) -> str:
    said: list[str] = []
    samples = vector(*((labels, float(value)) for labels, value in settings.get("samples", [])))
    async with world(
        compile_text(yaml.safe_dump(settings["rules"]), CATALOGUE),
        answer=lambda _: samples,
        lists={key: series(*each) for key, each in settings.get("series", {}).items()},
        names=settings.get("names", []),
        running=[LabeledObject(*each) for each in settings.get("pods", [])],
        nodes=[LabeledObject(*each) for each in settings.get("nodes", [])],
        resources=FakeResources(CATALOGUE),
    ) as here:
        for line in lines:
            said += [line, *(await ask(here, line[2:]) if line.startswith("? ") else ())]
    return "".join(f"{line}\n" for line in said)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    settings, separator, expected = path.read_text().partition("---\n")
    lines = [line for line in expected.splitlines() if line.startswith(("? ", "#"))]
    said = asyncio.run(run(yaml.safe_load(settings), lines))
    if pytestconfig.getoption("update"):
        path.write_text(settings + separator + said)
    else:
        assert said == expected
