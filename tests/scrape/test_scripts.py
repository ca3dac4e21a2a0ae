"""Scraped pods over time as data: `scripts/NAME` has what happens, and what is known then.

Above `---` is YAML. `scrape`, `port` and `more` are of the rules of the gauge depth and the counter hits;
`rules` are others. `values` and `ages` are those of the pods in Prometheus; a text is a failure. After `> `
something happens:

- `want METRICS PODS` of the owner x, or of another, `want OWNER:METRICS PODS`; `forget OWNER`.
- `pod NAME FIELDS` is how a pod is from now on: a field with its value, a field that is true, or `ready_for`,
  the seconds that it has been ready. Ports are `NAME:NUMBER`. `expire FAULT SUBJECT` ends it unless it lasts.
- `POD BODY` is what a pod shows. A semicolon ends a line; a failure begins with an exclamation mark.
- `ready POD SECONDS`: the pod became Ready so many seconds from now.
- `wait SECONDS`, and `step SECONDS`, after which all pods are scraped.

A line after `? ` is a question to what is scraped, or to the `api`. Below it are the values with their age,
and what is absent or unseen. `? scrapes` tells who was asked since the last such line, how many pods are to
be scraped, and how scrapes ended; `? why METRIC PODS` says why pods have no value, `? faults` the log and the
faults, and `? elsewhere METRIC` what another namespace knows. At the end are the active faults.

With `service` in the YAML, the endpoints of a Service are scraped for three external metrics: depth, the rate
hits, and plain, which is not scraped. `endpoints` says which pods it has, `unknown` and `missing` why there
are fewer; `? sum` asks for their sum. `scripts/test tests/scrape --update` writes what is known now.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.errors import PrometheusError, ScrapeError, StatusError
from adapter.model.objects.label_selectors import parse_selector
from adapter.model.timestamps import SECOND
from adapter.rules import matchers
from adapter.scrape.endpoints import Endpoint, FoundEndpoints
from adapter.scrape.readings import OwnUsage
from tests.scrape.scenes import read, rules, scraping
from tests.support.scripts import Recorded
from tests.support.world import Outcome, RulesWorld, custom_question, external_question, scraped_pod, vector

SCRIPTS = sorted((Path(__file__).parent / "scripts").iterdir())
PODS = {name: scraped_pod(name, f"10.0.0.{number}") for number, name in enumerate("abcd", 1)}


ENDPOINTS = {name: Endpoint(name, pod.ip, 9090) for name, pod in PODS.items()} | {
    "a-again": Endpoint("a", PODS["b"].ip, 9090)
}
SCRAPES, KINDS = "fastpath_scrapes_total", ("success", "timeout", "decode", "unreachable")
SERVICE_RULES = (Path(__file__).parents[1] / "data" / "rules" / "gateway.yaml").read_text()


def prometheus(settings: dict[str, Any], now: Callable[[], float]) -> Callable[[str], Outcome]:
    def answer(promql: str) -> Outcome:
        is_age = "timestamp" in promql
        found = settings.get("ages" if is_age else "values", {})
        if isinstance(found, str):
            return PrometheusError(*found.split(": ", 1))
        return vector(*(({"pod": pod}, value + is_age * now()) for pod, value in found.items()))

    return answer


class ScrapeScript:
    """A world, and what is said of it."""

    def __init__(self, here: RulesWorld, log: pytest.LogCaptureFixture, *, is_service: bool) -> None:
        self.here = here
        self.log = log
        self.is_service = is_service
        self.ready: dict[str, float] = {}
        self.pods = dict(PODS)
        here.scaler.became_ready = lambda _: self.ready

    async def happen(self, text: str) -> None:
        here = self.here
        match text.split(" ", 1):
            case ["own" | "endpoints" | "missing" | "none" | "unknown" as what, rest]:
                self.follow(what, rest)
            case ["want" | "forget" | "pod" | "expire" as what, rest]:
                self.arrange(what, *rest.split(" "))
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

    def arrange(self, what: str, first: str, *rest: str) -> None:
        """Let an owner want metrics of pods or nothing any more, a pod be another, or a fault end."""
        if what == "forget":
            self.here.scraped.forget(first)
        elif what == "expire":
            self.here.problems.expire(first, rest[0])
        elif what == "pod":
            self.pods[first] = scraped_pod(first, **{"ip": PODS[first].ip, **dict(map(self.field, rest))})
        else:
            owner, _, wanted = first.rpartition(":")
            metrics = [OwnUsage.CPU if each == "OwnUsage" else each for each in wanted.split(",")]
            self.here.scraped.want(owner or "x", "shop", metrics, [self.pods[name] for name in rest])

    def field(self, text: str) -> tuple[str, Any]:
        name, is_given, value = text.partition("=")
        if name == "ready_for":
            return "ready_since", round((self.here.clock.wall() - float(value)) * SECOND)
        if name == "ports":
            ports = (port.split(":") for port in value.split(",") if port)
            return name, {port: int(number) for port, number in ports}
        return name, (value or None if name == "ready" else value) if is_given else True

    def follow(self, what: str, rest: str) -> None:
        """Let the autoscaler want metrics, or the Service have endpoints."""
        if what == "own":
            self.here.scraped.want_endpoints("x", [metric for metric in rest.split(",") if metric != "-"])
            return
        if what == "endpoints":
            found = FoundEndpoints(tuple(ENDPOINTS[name] for name in rest.split(" ")))
        elif what == "missing":
            found = FoundEndpoints((ENDPOINTS["a"],), missing=(rest,))
        else:
            found = FoundEndpoints((), rest, known=what == "none")
        for key in self.here.scraped.sources:
            self.here.scraped.put_endpoints(key, found)

    def sum(self, metric: str, selector: str) -> list[str]:
        entry, now = self.here.scraped.external_entry(metric), self.here.clock.wall()
        if entry is None:
            return ["not scraped"]
        found = self.here.scraped.read_endpoints(entry, matchers.from_selector(parse_selector(selector)))
        if found is None:
            return ["not wanted"]
        if found.elements:
            values = " ".join(f"{element.value:g}" for element in found.elements)
            return [f"{values} of {found.time - now:+.4g} s{found.overdue and ' overdue: '}{found.overdue}"]
        said = "nothing" if found.elements is not None else "unknown"
        return [f"{said} since {found.last - now:+.4g} s: {found.reason}"]

    def look(self, metric: str, selector: str, namespace: str = "shop") -> list[str]:
        now = self.here.clock.wall()
        if self.here.scraped.entry_of(metric) is None:
            return ["not scraped"]
        found = read(self.here, metric, *PODS, namespace=namespace, selector=selector)
        said = [
            f"{name} {value.value:g} of {value.time - now:+.4g} s{' overdue' * value.overdue}"
            for name, value in found.values.items()
        ]
        said += [f"{name} is absent since {time - now:+.4g} s" for name, time in found.absent.items()]
        return [*said, *(f"{name} is unseen" for name in sorted(found.unseen))]

    async def ask(self, metric: str) -> list[str]:
        here = self.here
        here.querier.asked.clear()
        now = here.clock.wall()
        try:
            if self.is_service:
                asked = external_question(f"/namespaces/shop/{metric}")
                sums = (await here.provider.external(asked)).items
                said = [f"{each.labels} {each.milli}m of {each.time - now:+.4g} s" for each in sums]
            else:
                found = await here.provider.custom(custom_question(f"/namespaces/shop/{metric}"))
                said = [
                    *(
                        f"{each.described.name} {each.milli}m of {each.time - now:+.4g} s"
                        for each in found.items
                    ),
                    f"fresh for {found.fresh_until - here.clock.monotonic():.4g} s",
                ]
        except StatusError as error:
            said = [f"{error.code} {error.message}"]
        return [*(f"asks {promql}" for promql in here.querier.asked), *(said or ["nothing"])]

    def inquire(self, what: str, rest: str) -> list[str]:
        here = self.here
        if what == "scrapes":
            asked = [f"{endpoint.address}:{endpoint.port}" for endpoint in here.reader.asked]
            here.reader.asked.clear()
            ends = [f"{kind}: {count:g}" for kind in KINDS if (count := here.metric(SCRAPES, outcome=kind))]
            return [*asked, f"{here.metric('fastpath_scrape_targets'):g} targets", *ends]
        if what == "elsewhere":
            return self.look(rest, "", "elsewhere")
        if what == "why":
            metric, *names = rest.split(" ")
            entry = here.scraped.entry_of(metric)
            assert entry is not None
            reasons = [f"{name}: {here.scraped.reason_of(entry, 'shop', name)}" for name in names]
            return [*reasons, f"fault {here.scraped.read(entry, 'shop', names, ()).fault or 'none'}"]
        logged = [f"log {record.message}: {vars(record)['facts']}" for record in self.log.records]
        self.log.clear()
        return [*logged, *self.faults()]

    def faults(self) -> list[str]:
        return [f"fault {' '.join(key)}: {text}" for key, text in sorted(self.here.faults.active().items())]

    async def answer(self, text: str) -> list[str]:
        what, _, rest = text.partition(" ")
        if what in {"scrapes", "why", "faults", "elsewhere"}:
            return self.inquire(what, rest) or ["none"]
        if text.startswith("api "):
            return await self.ask(text.removeprefix("api "))
        if text.startswith("sum "):
            metric, _, selector = text.removeprefix("sum ").partition(" ")
            return self.sum(metric, selector)
        metric, _, selector = text.partition(" ")
        return self.look(metric, selector) or ["nothing"]


async def run(settings: dict[str, Any], lines: list[str], log: pytest.LogCaptureFixture) -> str:
    said: list[str] = []
    log.clear()
    text = settings.get("rules") or rules(settings.get("scrape", ""))
    text = text.replace("port: metrics,", f"port: {settings.get('port', 'metrics')},").replace(
        "  scrape:", f"  {settings.get('more', '')}\n  scrape:"
    )
    names = settings.get("names", "")
    if "service" in settings:
        text = SERVICE_RULES.replace("PORT", settings["service"] or "port: metrics")
        text = text.replace("QUERY", settings.get("query", "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)"))
    async with scraping(text.replace("  \n", ""), names=tuple(names)) as here:
        here.querier.answer = prometheus(settings, here.clock.wall)
        here.reader.openmetrics = "openmetrics" in settings
        script = ScrapeScript(here, log, is_service="service" in settings)
        for line in lines:
            said.append(line)
            if line.startswith("> "):
                await script.happen(line[2:])
            elif line.startswith("? "):
                said += await script.answer(line[2:])
        said += script.faults()
        for source in ("scrape", "overdue", "prometheus", "absent"):
            if count := here.metric("fastpath_scraped_values_total", source=source):
                said.append(f"{count:.0f} values: {source}")
    return "".join(f"{line}\n" for line in said)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script(path: Path, recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    worlds = []
    for text in path.read_text().split("===\n"):
        settings, separator, expected = text.partition("---\n")
        lines = [line for line in expected.splitlines() if line.startswith(("> ", "? ", "#"))]
        said = asyncio.run(run(yaml.safe_load(settings) or {}, lines, caplog))
        worlds.append(settings + separator + said)
    recorded(path, "===\n".join(worlds))
