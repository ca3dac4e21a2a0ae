"""Discovery over time as data: `scripts/discovery` has what happens, what is listed, and what is served then.

A line after `> ` has what happens, separated by semicolons:

- `begin RULES` starts discovery, `adopt RULES` has it take others. Rules are those of custom metrics and,
  after a bar, of external ones. Each is a selector, after a colon with the name of its metric.
- `reserve NAMES`, before the begin, keeps names for Fastpath.
- `list SELECTOR NAMES`: the series that Prometheus has from now on, `NAME*COUNT` where it has many, or
  `!KIND TEXT` for a failure. A NAME is written as in JSON, with `_` for a space. `hold` lets the lists wait,
  `release` gives them.
- `relist` lets the next relist come and end, `wait SECONDS` lets the loop go on, `clock SECONDS` the clock.
- `look NAME` waits for a look-up, `ask NAME` starts one, `cancel NUMBER` cancels the question of this number.
- `missing` asks which rules have no series, `metrics` what is counted.

Below it are the lists that were asked for, the metrics that are served when these are others, ended look-ups,
the log, and the faults that begin or end. `scripts/test tests/provider --update` writes what happens now.
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.provider.relist import Relister
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import WALL, FakeClock
from tests.support.scripts import Scripts
from tests.support.world import FakeLister, compile_text

pytestmark = pytest.mark.looptime

SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "discovery")
RULES = ["s", "t", "|", "s"]
INTERVAL = 60.0


def series(words: list[str]) -> tuple[SeriesInfo, ...] | PrometheusError:
    if words and words[0].startswith("!"):
        return PrometheusError(words[0][1:], " ".join(words[1:]))
    found = []
    for word in words:
        name, _, count = word.partition("*")
        read = json.loads(f'"{name}"').replace("_", " ") if "{" in name else name
        found.append(SeriesInfo(read, frozenset({"pod"}), int(count or 1)))
    return tuple(found)


def rules_of(words: list[str]) -> str:
    bar = words.index("|") if "|" in words else len(words)
    sections = {"rules": words[:bar], "externalRules": words[bar + 1 :]}
    written: dict[str, list[dict[str, Any]]] = {}
    for section, rules in sections.items():
        for rule in rules:
            selector, _, name = rule.partition(":")
            fields = {"seriesQuery": selector, "resources": {"template": "<<.Resource>>"}}
            written.setdefault(section, []).append(fields | ({"name": {"as": name}} if name else {}))
    return json.dumps(written)


class Discovery:
    """A relister and what surrounds it, and what is said of it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.lister: Any = FakeLister({"s": series(["a"]), "t": series(["b"])})
        self.clock = FakeClock()
        self.monitoring = Monitoring()
        self.faults = ProblemLog(self.monitoring, self.clock)
        self.reserved: frozenset[str] = frozenset()
        self.relister: Relister
        self.tasks: list[asyncio.Task[None]] = []
        self.looked: list[tuple[str, asyncio.Task[bool]]] = []
        self.said: list[str] = []
        self._log = caplog
        self._listed = 0
        self._served = ""
        self._faults = self.faults.active()

    async def begin(self, rules: str) -> None:
        self.relister = Relister(
            self.lister,
            self.clock,
            self.monitoring,
            self.faults,
            interval=INTERVAL,
            max_age=600.0,
            reserved=self.reserved,
        )
        await self.relister.adopt(compile_text(rules))
        self.tasks.append(asyncio.create_task(self.relister.run()))
        if self.lister.gate.is_set():
            await self.relister.attempted.wait()

    def ask(self, name: str) -> asyncio.Task[bool]:
        task = asyncio.create_task(self.relister.look_up(name, self.relister.ruleset.custom))
        self.looked.append((name, task))
        return task

    async def look(self, name: str) -> None:
        begun = asyncio.get_running_loop().time()
        await self.ask(name)
        if waited := asyncio.get_running_loop().time() - begun:
            self.said.append(f"after {waited:.4g} s")

    def change(self, what: str) -> bool:
        """Change what surrounds discovery; return whether that is what happens."""
        match what.split(" "):
            case ["list", selector, *words]:
                self.lister.lists[selector] = series(words)
            case ["hold"]:
                self.lister.gate.clear()
            case ["release"]:
                self.lister.gate.set()
            case ["reserve", *names]:
                self.reserved = frozenset(names)
            case _:
                return False
        return True

    async def happen(self, what: str) -> None:
        match what.split(" "):
            case ["begin" | "adopt" as verb, *rules]:
                text = rules_of([rule for rule in rules if rule != "nothing"] if rules else RULES)
                await (self.begin(text) if verb == "begin" else self.relister.adopt(compile_text(text)))
            case ["relist"]:
                self.clock.advance(INTERVAL)
                await asyncio.sleep(INTERVAL + 0.001)
            case ["wait", seconds]:
                await asyncio.sleep(float(seconds))
            case ["clock", seconds]:
                self.clock.advance(float(seconds))
            case ["look", name]:
                await self.look(name)
            case ["ask", name]:
                self.ask(name)
            case ["cancel", number]:
                self.looked[int(number)][1].cancel()
            case ["missing" | "metrics" as asked]:
                missing = self.relister.find_rules_without_series()
                self.said += [str(missing)] if asked == "missing" else self.count()
            case _:
                raise ValueError(what)

    def count(self) -> list[str]:
        """Return the metrics of discovery that are not 0; times are seconds since the begin."""
        found = []
        for metric in self.monitoring.registry.collect():
            for each in metric.samples if metric.name.startswith("fastpath_discovery") else ():
                value = each.value - WALL * ("timestamp" in each.name)
                name = " ".join([each.name.removeprefix("fastpath_discovery_"), *each.labels.values()])
                found += [f"{name}: {value:g}"] if each.value and "created" not in name else []
        return found

    async def line(self, text: str) -> None:
        for what in text.split("; "):
            if not self.change(what):
                await self.happen(what)
        asked = self.lister.asked[self._listed :]
        self._listed += len(asked)
        self.said += [f"lists {' '.join(each)} since {start - WALL:g} s" for each, start in asked]
        registry = self.relister.registry
        custom = " ".join(sorted(key.metric for key in registry.custom)) or "nothing"
        external = " ".join(sorted(registry.external)) or "nothing"
        served = f"serves {registry.generation}: {custom}; external {external}"
        self.said += [served] if served != self._served else []
        self._served = served
        done = [(name, task) for name, task in self.looked if task.done()]
        self.said += [f"{name}: {'cancelled' if task.cancelled() else task.result()}" for name, task in done]
        self.looked = [(name, task) for name, task in self.looked if not task.done()]
        self.say_problems()

    def say_problems(self) -> None:
        logged = []
        for record in self._log.records:
            facts = vars(record)["facts"].items()
            known = [str(value) for name, value in facts if value and name not in {"fault", "error"}]
            logged.append(f"log {record.message}: {' '.join(known)}")
        self.said += sorted(logged)
        self._log.clear()
        before, self._faults = self._faults, self.faults.active()
        self.said += [
            f"fault {' '.join(key)}: {self._faults[key]}" for key in sorted({*self._faults} - {*before})
        ]
        self.said += [f"fault {' '.join(key)} ended" for key in sorted({*before} - {*self._faults})]


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, caplog: pytest.LogCaptureFixture, pytestconfig: pytest.Config) -> None:
    caplog.set_level(logging.INFO)
    discovery = Discovery(caplog)
    try:
        for line in SCRIPTS.lines(title):
            discovery.said.append(f"> {line}")
            await discovery.line(line)
    finally:
        tasks = [*discovery.tasks, *(task for _, task in discovery.looked)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    SCRIPTS.check(title, discovery.said, pytestconfig)


async def test_endless_unknown_names_ask_prometheus_no_more_often(caplog: pytest.LogCaptureFixture) -> None:
    """And take no memory: only a name that was looked up is remembered, for a minute."""
    discovery = Discovery(caplog)
    await discovery.line("begin")
    for number in range(600):
        await discovery.line(f"look n{number}; clock 0.1")
    assert len(discovery.lister.asked) == 1 + 4
    assert len(discovery.relister._asked_names) <= 4
    counted = discovery.count()
    assert {"lookups_total sent: 4", "lookups_total limited: 596"} <= {*counted}
    discovery.tasks[0].cancel()
    await asyncio.gather(*discovery.tasks, return_exceptions=True)
