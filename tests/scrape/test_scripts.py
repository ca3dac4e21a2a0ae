"""Scraped pods over time as data: `scripts/NAME` has what happens, and what is known then.

Above `---` is YAML: what is `more` in the rules of the gauge depth and the counter hits, and what Prometheus
answers: the `values` and `ages` of pods, or a failure. After `> ` something happens: `want METRICS PODS`,
`POD BODY` (lines end with a semicolon; a failure begins with an exclamation mark), `ready POD SECONDS` from
now, `wait SECONDS`, and `step SECONDS`, after which all pods are scraped. A line after `? ` is a question, to
what is scraped or to the `api`. Below it are the values with their age, and what is absent or unseen. At the
end are the faults that are active. `scripts/test tests/scrape --update` writes what is known now.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.errors import PrometheusError, ScrapeError, StatusError
from tests.scrape.scenes import read, rules, scraping
from tests.support.world import FakePod, Outcome, World, custom_question, vector

SCRIPTS = sorted((Path(__file__).parent / "scripts").iterdir())
PODS = {name: FakePod(name, f"10.0.0.{number}") for number, name in enumerate("abcd", 1)}


def prometheus(settings: dict[str, Any], now: Callable[[], float]) -> Callable[[str], Outcome]:
    def answer(promql: str) -> Outcome:
        is_age = "timestamp" in promql
        found = settings.get("ages" if is_age else "values", {})
        if isinstance(found, str):
            return PrometheusError(*found.split(": ", 1))
        return vector(*(({"pod": pod}, value + is_age * now()) for pod, value in found.items()))

    return answer


class Script:
    """A world, and what is said of it."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.ready: dict[str, float] = {}
        here.scraped.follow_readiness(lambda _: self.ready)

    async def happen(self, text: str) -> None:
        here = self.here
        match text.split(" ", 1):
            case ["want", rest]:
                metrics, *names = rest.split(" ")
                here.scraped.want("x", "shop", metrics.split(","), [PODS[name] for name in names])
            case ["ready", rest]:
                name, seconds = rest.split(" ")
                self.ready[name] = here.clock.monotonic() + float(seconds)
            case ["wait", seconds]:
                here.clock.advance(float(seconds))
            case ["step", seconds]:
                here.clock.advance(float(seconds))
                await here.scrape()
            case [name, body] if body.startswith("!"):
                here.reader.bodies[PODS[name].ip] = ScrapeError(*body[1:].split(": ", 1))
            case [name, body]:
                here.reader.bodies[PODS[name].ip] = body.replace("; ", "\n")

    def look(self, metric: str, selector: str) -> list[str]:
        now = self.here.clock.wall()
        found = read(self.here, metric, *PODS, selector=selector)
        said = [
            f"{name} {value.value:g} of {value.time - now:+.4g} s{' overdue' * value.overdue}"
            for name, value in found.values.items()
        ]
        said += [f"{name} is absent since {time - now:+.4g} s" for name, time in found.absent.items()]
        return [*said, *(f"{name} is unseen" for name in sorted(found.unseen))]

    async def ask(self, metric: str) -> list[str]:
        self.here.querier.asked.clear()
        now = self.here.clock.wall()
        try:
            items = (await self.here.provider.custom(custom_question(f"/namespaces/shop/{metric}"))).items
            said = [f"{item.described.name} {item.milli}m of {item.time - now:+.4g} s" for item in items]
        except StatusError as error:
            said = [f"{error.code} {error.message}"]
        return [*(f"asks {promql}" for promql in self.here.querier.asked), *(said or ["nothing"])]

    async def answer(self, text: str) -> list[str]:
        if text.startswith("api "):
            return await self.ask(text.removeprefix("api "))
        metric, _, selector = text.partition(" ")
        return self.look(metric, selector) or ["nothing"]


async def run(settings: dict[str, Any], lines: list[str]) -> str:
    said: list[str] = []
    text = rules(settings.get("scrape", "")).replace("  scrape:", f"  {settings.get('more', '')}\n  scrape:")
    names = settings.get("names", "")
    async with scraping(text.replace("  \n", ""), names=tuple(names)) as here:
        here.querier.answer = prometheus(settings, here.clock.wall)
        script = Script(here)
        for line in lines:
            said.append(line)
            if line.startswith("> "):
                await script.happen(line[2:])
            elif line.startswith("? "):
                said += await script.answer(line[2:])
        said += [f"fault {' '.join(key)}: {text}" for key, text in here.faults.active().items()]
        for source in ("scrape", "overdue", "prometheus", "absent"):
            if count := here.metric("fastpath_scraped_values_total", source=source):
                said.append(f"{count:.0f} values: {source}")
    return "".join(f"{line}\n" for line in said)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script(path: Path, pytestconfig: pytest.Config) -> None:
    worlds = []
    for text in path.read_text().split("===\n"):
        settings, separator, expected = text.partition("---\n")
        lines = [line for line in expected.splitlines() if line.startswith(("> ", "? ", "#"))]
        said = asyncio.run(run(yaml.safe_load(settings) or {}, lines))
        worlds.append(settings + separator + said)
    if pytestconfig.getoption("update"):
        path.write_text("===\n".join(worlds))
    else:
        assert "===\n".join(worlds) == path.read_text()
