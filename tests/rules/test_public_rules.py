"""Configurations that people have published: each loads, and asks what prometheus-adapter would ask.

The files are other people's and not part of this repository. What is expected of them stands here.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from adapter.config import rules_file
from adapter.config.rules_config import Parsed
from adapter.errors import NotFoundError
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.model.objects.resources import BUILTIN
from adapter.rules.compile import Ruleset, compile_rules
from fastpath_tools.live import chart_values as helm_values
from tests.support.world import question, series, vector, world

DATA = Path(__file__).parents[1] / "data"
FOLDER = Path(__file__).parents[3] / "shared" / "conformance" / "rules"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no public configurations in {FOLDER}")


@dataclass(frozen=True)
class PublicQuestion:
    """A question of tests/data/public-rules.yaml, which says what its fields are."""

    rule: int
    name: str
    labels: str
    served: str
    request: str
    promql: str | None
    api: str = "custom"
    listed: Sequence[str] = ()


@dataclass(frozen=True)
class Expected:
    """What a file holds: how many custom and external rules, of which shape it is, and questions."""

    rules: Sequence[int]
    asked: Sequence[PublicQuestion]
    is_chart: bool = True
    resource_rules: bool = False


DEFAULTS = 6
"""How many rules a chart has by default."""

FILES: Mapping[str, Expected] = {
    name: Expected(**{**entry, "asked": [PublicQuestion(**asked) for asked in entry["asked"]]})
    for name, entry in yaml.safe_load((DATA / "public-rules.yaml").read_text()).items()
}


def parse(name: str) -> Parsed:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert helm_values.is_chart_values(text) == FILES[name].is_chart
    return (helm_values.rules_from_chart if FILES[name].is_chart else rules_file.parse_rules)(text, name)


def compiled(name: str) -> Ruleset:
    ruleset, faults = compile_rules(parse(name).config, BUILTIN)
    assert faults == ()
    return ruleset


def test_every_file_is_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_loads(name: str) -> None:
    parsed = parse(name)
    assert (parsed.faults, parsed.fatal) == ((), ())
    assert (parsed.config.resource_rules is not None) == FILES[name].resource_rules
    ruleset = compiled(name)
    assert [len(ruleset.custom), len(ruleset.external)] == FILES[name].rules


@pytest.mark.parametrize("name", [name for name in FILES if FILES[name].is_chart])
def test_what_the_chart_would_write_means_the_same(name: str) -> None:
    rendered = helm_values.render_config((FOLDER / f"{name}.yaml").read_text())
    ruleset, faults = compile_rules(rules_file.parse_rules(rendered, name).config, BUILTIN)
    assert faults == ()
    wanted = compiled(name)
    for made, other in zip(
        (*ruleset.custom, *ruleset.external), (*wanted.custom, *wanted.external), strict=True
    ):
        assert (made.config.series_query, made.config.metrics_query) == (
            other.config.series_query,
            other.config.metrics_query,
        )


QUESTIONS = {
    f"{name} {asked.request}": (name, asked) for name, expected in FILES.items() for asked in expected.asked
}


@pytest.mark.parametrize(("name", "asked"), QUESTIONS.values(), ids=QUESTIONS)
async def test_query(name: str, asked: PublicQuestion) -> None:
    ruleset = compiled(name)
    rules = ruleset.custom if asked.api == "custom" else ruleset.external
    found = series({"__name__": asked.name, **dict.fromkeys(asked.labels.split(), "x")})
    selector = rules[asked.rule].config.series_query
    async with world(ruleset, answer=lambda _: vector(), lists={selector: found}, names=asked.listed) as here:
        if asked.api == "custom":
            served = {f"{each.resource}/{each.metric}" for each in here.provider.custom_metrics()}
        else:
            served = set(here.provider.external_metrics())
        assert served == set(asked.served.split())
        wanted = question(asked.api, asked.request)
        with contextlib.suppress(NotFoundError):  # nothing has a value
            if isinstance(wanted, CustomQuestion):
                await here.provider.custom(wanted)
            else:
                assert isinstance(wanted, ExternalQuestion)
                await here.provider.external(wanted)
        assert here.querier.asked == ([] if asked.promql is None else [asked.promql])
