"""What a line of a story of the loop does, and what is said then: see test_scripts.py."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import msgspec

from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.observation import NOT_YET, ExternalReading, PodsReading, Unavailable
from adapter.autoscaler.explain import debug
from adapter.errors import KubernetesError, NotLeadingError, NotSyncedError
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.kubernetes.transport import RESET
from adapter.model import steps
from adapter.model.autoscaling import slices
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, FastPathAutoscaler, full_status
from adapter.model.autoscaling.floor import floor_of
from adapter.model.autoscaling.view import AutoscalerView, FleetView
from adapter.model.ready_times import UNKNOWN, PodStart
from adapter.model.timestamps import SECOND
from tests.autoscaler.looped import HPA, OWN, LoopBench, window
from tests.autoscaler.specs import read_spec
from tests.support.controller import QUEUE, fpa, shown_document
from tests.support.scaling import NOW, pods
from tests.support.waiting import running


def read_error(words: Sequence[str]) -> Exception | None:
    """Return an answer of the API server, or that the fence is `shut`, or a `defect`; None for no words."""
    if not words:
        return None
    other = {"shut": NotLeadingError("shut"), "defect": RuntimeError("defect")}
    return other.get(words[0]) or KubernetesError(int(words[0]), "", " ".join(words[1:]))


SCHEMA = json.loads(Path("docs/reference/debug.schema.json").read_text())
PREFER = 'scaleDown={"prefer":"Idle","metric":"connections"}'


class UnlistedPods(dict[str, Any]):
    """Pods of a cache that starts again."""

    def get(self, *_: object) -> Any:
        raise NotSyncedError("pods: the first list has not arrived yet")


class WriteCalls:
    """The calls of writes in their order, what happens at one of them, and what the next ones raise."""

    def __init__(self, script: "LoopScript") -> None:
        self.made: list[str] = []
        self.then: dict[tuple[str, int], list[str]] = {}
        self.errors: dict[str, list[KubernetesError]] = {"put": [], "get": []}
        self._script = script
        server = script.bench.server
        self._acquire, self._put, self._get = server.acquire, server.put_scale, server.get_scale
        server.acquire = self.acquire  # type: ignore[method-assign]
        server.put_scale = self.put_scale  # type: ignore[method-assign]
        server.get_scale = self.get_scale  # type: ignore[method-assign]

    async def acquire(self, target: ScaleTarget) -> None:
        await self._acquire(target)
        await self._call("slot", "slot")

    async def put_scale(self, target: ScaleTarget, replicas: int) -> str:
        await self._call("put", f"put {replicas}")
        return await self._put(target, replicas)

    async def get_scale(self, target: ScaleTarget) -> ScaleTarget:
        await self._call("get", "get")
        return await self._get(target)

    async def _call(self, kind: str, text: str) -> None:
        self.made.append(text)
        number = sum(each.startswith(kind) for each in self.made)
        if line := self.then.get((kind, number)):
            await self._script.do(line)
        if self.errors.get(kind):
            raise self.errors[kind].pop(0)


class LoopScript:
    """What a line of a script does, and what is said then."""

    def __init__(self) -> None:
        self.bench = LoopBench()
        self.running = contextlib.AsyncExitStack()
        self.held: dict[str, asyncio.Event] = {}
        self.sent = WriteCalls(self)
        self._told = 0

    def news(self) -> list[str]:
        """Return what was written and told since the last line."""
        log = self.bench.server.log
        news, self._told = log[self._told :], len(log)
        return news

    # -- what happens --------------------------------------------------------------------------------------

    def want(self, text: str) -> None:
        """Have the queue ask for so many replicas; what pods show stays."""
        bench = self.bench
        late, _, count = text.rpartition(":")
        if text in {"none", "not-yet"}:
            reason = NOT_YET if text == "not-yet" else "NoMetrics"
            bench.show("queue", Unavailable(reason, text))
        else:
            bench.show("queue", ExternalReading([round(float(count) * 1000)], overdue=late))

    def share(self, metric: str, *shown: str) -> None:
        """Have pods show values: `web-0=5`, or `4x5` for the first four of web."""
        values: dict[str, int] = {}
        for text in shown:
            if "=" in text:
                name, _, value = text.partition("=")
                values[name] = round(float(value) * 1000)
            else:
                count, value = text.split("x")
                values |= {f"web-{number}": round(float(value) * 1000) for number in range(int(count))}
        self.bench.show(metric, PodsReading(values))

    def put(self, name: str, replicas: str, *words: str) -> None:
        self.bench.put(self._read(name, words), int(replicas))

    def spec(self, name: str, *words: str) -> None:
        self.bench.put(self._read(name, words))

    def _read(self, name: str, words: Iterable[str]) -> FastPathAutoscaler:
        spec = {"metrics": QUEUE} | read_spec(words)
        return fpa(spec.pop("metrics"), name, spec.pop("uid", "uid-1"), **spec)

    def hpa(self, replicas: str, *words: str) -> None:
        """Put an HPA, and its target if its count is not `-`."""
        spec = read_spec(words)
        boost = Boost(spec.pop("mode", BOOST), digest=spec.pop("digest", "one"))
        known: dict[str, Any] = {name: spec.pop(name) for name in ("shown", "fault", "hold") if name in spec}
        count = None if replicas == "-" else int(replicas)
        self.bench.boost(boost._replace(**known), count, self._published, **spec)

    _published: Any = None

    async def step(self, seconds: str = "0") -> None:
        await self.bench.step(float(seconds))
        await self._settle()

    async def run(self, count: str, seconds: str = "1") -> None:
        for _ in range(int(count)):
            await self.step(seconds)

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def minimums(self, count: str) -> str:
        """Decide so often, and return the minimums of schedules that were in force."""
        found = set[int | None]()
        for _ in range(int(count)):
            await self.step("1")
            found.add(self.bench.state.bounds.now.min)
        return " ".join(map(str, found))

    async def busy(self, count: str, seconds: str) -> None:
        """Let time pass while something changes all the time."""
        for _ in range(int(count)):
            await self.step(seconds)
            self.touch()

    def wait(self, seconds: str) -> None:
        """Let time pass without a decision."""
        self.bench.clock.seconds += float(seconds)

    def touch(self) -> None:
        self.bench.controller.loop.touch(self.bench.state.key)

    async def lead(self, *words: str) -> None:
        """Have another process own what this one did: it knows what is stored in the API."""
        bench = self.bench
        _, status, changes = bench.server.statuses[-1] if bench.server.statuses else ("", None, ())
        self._published = bench.floors.entries.get("uid-1")
        bench.start()
        await self.running.enter_async_context(running(bench.outbox.run()))
        if words and words[0] == "hpa":
            self.hpa("-", *words[1:])
            return
        stored = None if status is None else full_status(status, changes)
        bench.controller.put(msgspec.structs.replace(self._read("web", words), status=stored))

    def again(self) -> None:
        """Have the same process own the slice again."""
        number = slices.slice_of("default")
        self.bench.controller.drop(number)
        self.bench.controller.begin(number, self.bench.floors)

    def without_history(self) -> None:
        self.bench.controller.context = self.bench.controller.context._replace(keeps_history=False)

    def remove(self) -> None:
        self.bench.controller.remove(self.bench.state.key)

    def set(self, name: str, replicas: str, writer: str, *how: str) -> None:
        uid = next((word[4:] for word in how if word.startswith("uid=")), "")
        self.bench.server.set(name, int(replicas), writer.strip("-"), told="untold" not in how, uid=uid)

    def tell(self, name: str = "web") -> None:
        self.bench.server.tell(name)

    def unmanage(self) -> None:
        """Have a Scale whose count has no known writer."""
        self.bench.server.scales["web"] = self.bench.server.scales["web"]._replace(manager="")

    def missing(self, name: str = "web") -> None:
        self.bench.server.cached[name] = Unfound(f'deployments.apps "{name}" not found')

    def pods(self, name: str, *listed: str) -> None:
        """Have so many Ready pods, or those of these names."""
        if listed[0].isdigit():
            self.bench.pods.pods[f"app={name}"] = pods(int(listed[0]))
        else:
            found = [WatchedPod(each, ready="True", ready_since=NOW) for each in listed]
            self.bench.pods.pods[f"app={name}"] = found

    def unlisted(self) -> None:
        """Have a cache of pods that starts again."""
        self.bench.pods.pods = UnlistedPods()

    def starts(self, *seconds: str) -> None:
        """Have pods be Ready after so many seconds."""
        for each in seconds:
            self.bench.state.target.ledger.note(PodStart(UNKNOWN, UNKNOWN, UNKNOWN, int(each) * 1000))

    def sampled(self, *ages: str) -> None:
        """Have the values of the sources be so many seconds old, over two seconds; `-` for no value."""
        for source, age in zip(self.bench.sources.opened, ages, strict=True):
            source.sampled = None if age == "-" else NOW + int(age) * SECOND
            source.span = None if age == "-" else 2 * SECOND

    def rival(self, *names: str) -> None:
        self.bench.rivals.names = names

    def clock(self, seconds: str) -> None:
        self.bench.clock.skew += float(seconds)

    def doubt(self, *words: str) -> None:
        self.bench.doubt = " ".join(words)

    # -- writes --------------------------------------------------------------------------------------------

    async def do(self, line: Sequence[str]) -> None:
        """Do what a line says within another, or several that `;` divides."""
        for part in " ".join(line).split(" ; "):
            verb, *words = part.split(" ")
            done = getattr(self, verb.replace("-", "_"))(*words)
            if isinstance(done, Awaitable):
                await done

    def when(self, call: str, number: str, *line: str) -> None:
        """Have something happen at a `slot`, a `put` or a `get`."""
        self.sent.then[call, int(number)] = list(line)

    def answer(self, call: str, *codes: str) -> None:
        """Have the next calls end with these codes, 0 for a connection that is reset."""
        reasons = {0: RESET, 409: "Conflict", 429: "TooManyRequests"}
        self.sent.errors[call] = [
            KubernetesError(int(code), reasons.get(int(code), ""), f"answer {code}") for code in codes
        ]

    def calls(self) -> str:
        """Return the calls of writes since they were asked for last."""
        made, self.sent.made = self.sent.made, []
        return ", ".join(made) or "none"

    def shut(self) -> None:
        """Have the fence shut, within a call."""
        raise NotLeadingError("shut")

    def vanish(self) -> None:
        self.bench.server.cached.clear()

    def unversioned(self) -> None:
        """Have the caches show a Scale without a version."""
        self.bench.server.cached["web"] = self.bench.server.scales["web"]._replace(resource_version="")

    def spoil(self, owner: str, name: str, times: str = "1") -> None:
        """Have a function raise so many times, and after that do what it did before."""
        place = getattr(self.bench, owner)
        works, left = getattr(place, name), [int(times)]

        def broken(*given: Any, **named: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise ZeroDivisionError
            return works(*given, **named)

        setattr(place, name, broken)

    def defects(self) -> str:
        value = self.bench.monitoring.registry.get_sample_value
        return f"{value('fastpath_scaler_unexpected_errors_total') or 0:g}"

    def hold(self, what: str) -> None:
        self._gate(what, asyncio.Event())

    async def free(self, what: str) -> None:
        self.held.pop(what).set()
        self._gate(what, None)
        await self._settle()

    def skip(self, what: str) -> None:
        """Hold nothing more, and go on to hold what is held."""
        event = self.held[what]
        self._gate(what, None)
        self.held[what] = event

    def _gate(self, what: str, event: asyncio.Event | None) -> None:
        if event is not None:
            self.held[what] = event
        if what in {"turn", "answer"}:
            setattr(self.bench.server, "turn" if what == "turn" else "gate", event)
        else:
            gated: Any = self.bench.floors if what == "floor" else self.bench.costs
            gated.gate = event

    def fail(self, *words: str) -> None:
        self.bench.server.fail = " ".join(words)

    def lose(self, is_lost: str) -> None:
        self.bench.server.lose = is_lost == "yes"

    def refuse(self, *words: str) -> None:
        """Have floors refused, or nothing any more."""
        self.bench.floors.fail = read_error(words)

    def deny(self, *words: str) -> None:
        """Have costs of pods refused, or nothing any more."""
        self.bench.costs.error = read_error(words)

    def ignore_costs(self) -> None:
        self.bench.costs.ignores = True

    # -- schedules and forecasts ---------------------------------------------------------------------------

    def windows(self, kind: str, *spans: str) -> None:
        """Have windows, each as `13:00-14:00=12`; `early` ones begin by the start-up time of the pods."""
        key = HPA if kind == "hpa" else OWN
        found = []
        for span in spans:
            times, _, rest = span.partition("=")
            begin, end = times.split("-")
            least, _, early = rest.partition(":")
            spec: dict[str, Any] = {"ready": "ByStart"} if early else {}
            found.append(window(begin, end, int(least), **spec))
        self.bench.schedules.by_key = {key: tuple(found)}

    def schedules(self, *words: str) -> None:
        """Have the schedules `known`, `unknown`, or too many, which is said in these words."""
        self.bench.schedules.synced = words != ("unknown",)
        self.bench.schedules.excess = "" if words[0] in {"known", "unknown"} else " ".join(words)

    def forecast(self, kind: str, least: str) -> None:
        self.bench.forecasting.by_key = {HPA if kind == "hpa" else OWN: int(least)}

    # -- idle pods -----------------------------------------------------------------------------------------

    async def idle(self, *words: str) -> None:
        """Have pods a to e with 1 to 5 connections, which an autoscaler ranks."""
        self._rank(5)
        self.spec(
            "web", *({} if any(word.startswith("window") for word in words) else ["window=0"]), PREFER, *words
        )
        await self.run("2")

    async def idle_hpa(self, *words: str) -> None:
        """Have an HPA that wants 3 of 5 such pods; it scales down after a minute."""
        self._rank(3)
        self.hpa("-", "window=60", PREFER, *words)
        await self.step("1")
        self.want("3")

    def _rank(self, count: int) -> None:
        self.want("5")
        self.share("connections", *(f"{name}={number}" for number, name in enumerate("abcde"[:count], 1)))
        self.bench.server.set("web", 5)
        self.pods("web", *"edcba")

    def mark(self, name: str, cost: str = "") -> None:
        self.bench.change(name, cost=int(cost) if cost else None)

    # -- what is known -------------------------------------------------------------------------------------

    def condition(self, kind: str) -> str:
        found = statuses.find(self.bench.last().status.conditions, kind)
        return "none" if found is None else f"{found.status} {found.reason}: {found.message}"

    def last(self) -> str:
        made = self.bench.last()
        return f"{made.status.current_replicas} of {made.status.desired_replicas}"

    def trace(self) -> list[str]:
        return [step.text() for step in self.bench.last().trace]

    def status(self) -> str:
        if not self.bench.server.statuses:
            return "none"
        _, status, changes = self.bench.server.statuses[-1]
        made = " ".join(f"{each.change:+}" for each in changes) or "no changes"
        return f"{status.current_replicas} of {status.desired_replicas}, {made}"

    def changes(self) -> str:
        """Return the changes that policies count, and how many seconds ago they were."""
        history, now = self.bench.state.memory.history, self.bench.controller.loop.clock.now()
        signed = [("+", each) for each in history.ups] + [("-", each) for each in history.downs]
        found = (f"{sign}{each.change} {(now - each.at) / SECOND:g} s ago" for sign, each in signed)
        return ", ".join(found) or "none"

    def ours(self) -> str:
        """Return the write of ours that another client may take back."""
        ours = self.bench.state.memory.conflicts.ours
        return "none" if ours is None else f"{ours[0]} to {ours[1]}"

    def error(self) -> str:
        return self.bench.last().error or "none"

    def given_back(self) -> str:
        return str(self.bench.server.given_back)

    def reversals(self) -> str:
        return str(len(self.bench.state.memory.conflicts.reversals + self.bench.state.memory.boost.reversals))

    def journal(self) -> list[str]:
        return [
            f"{entry.current} to {entry.replicas}: {entry.outcome}"
            + (f", {entry.change.replicas:+} by {entry.change.by}" if entry.change is not None else "")
            for entry in self.bench.journal.of(self.bench.state.key)
        ] or ["nothing"]

    def sources(self) -> str:
        """Return how often each was read, and which are closed."""
        return " ".join(
            f"{source.reads} closed" if source.closed else f"{source.reads}"
            for source in self.bench.sources.opened
        )

    def followed(self) -> str:
        """Return how many selections of pods are followed."""
        return str(sum(not following.closed for following in self.bench.pods.followings))

    def failures(self) -> str:
        return str(self.bench.state.turn.failures)

    def decisions(self) -> str:
        return f"{self.bench.monitoring.registry.get_sample_value('fastpath_scaler_lag_seconds_count'):g}"

    def metric(self, name: str, *more: str) -> str:
        key = OWN if self.bench.controller.find(OWN) is not None else HPA
        labels = {"kind": key.kind, "namespace": "default", "name": "web"}
        labels |= dict(each.split("=") for each in more)
        value = self.bench.monitoring.registry.get_sample_value(f"fastpath_autoscaler_{name}", labels)
        return "none" if value is None else f"{value:.12g}"

    def shown(self, path: str) -> str:
        """Return a part of the document of the autoscaler, or that its schema does not allow it."""
        document = shown_document(self.bench.controller)
        msgspec.convert(document, AutoscalerView)
        return self._part(document, path)

    def fleet(self, *names: str) -> str:
        """Return some of what a line of the fleet says."""
        answer = steps.run(debug.show_fleet(self.bench.controller, NOW / SECOND))
        msgspec.json.decode(answer.body, type=FleetView)
        line = json.loads(self._part(json.loads(answer.body), "autoscalers.0"))
        return json.dumps({name: line[name] for name in names})

    @staticmethod
    def _part(document: Any, path: str) -> str:
        jsonschema.validate(document, SCHEMA)
        for step in path.split("."):
            document = document[int(step) if step.lstrip("-").isdigit() else step]
        return json.dumps(document)

    def floor(self) -> str:
        """Return what is published, and until how many seconds after the beginning."""
        entry = self.bench.floors.entries.get("uid-1")
        if entry is None:
            return "none"
        now = round(self.bench.clock.wall() * SECOND)
        ends = {
            f"{name} {count} for {(until - now) / SECOND:g} s": count
            for name, count, until in (
                ("raise", entry.replicas, entry.until),
                ("schedule", entry.scheduled, entry.scheduled_until),
                ("forecast", entry.forecast, entry.forecast_until),
            )
        }
        parts = [text for text, count in ends.items() if count]
        parts += ["stands"] * (entry.stands and entry.replicas > 0)
        if entry.demoted is not None:
            parts.append(f"demoted by {entry.demoted.by}")
        return f"{floor_of(entry, now, 100)}: {', '.join(parts) or 'nothing'}"
