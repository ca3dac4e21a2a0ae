"""What a line of a story of the loop does: see test_scripts.py."""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

import msgspec

from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.observation import NOT_YET, ExternalReading, PodsReading, Unavailable
from adapter.errors import KubernetesError, NotLeadingError, NotSyncedError
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.kubernetes.transport import RESET
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, FastPathAutoscaler, full_status
from adapter.model.objects.pods import PodFacts
from adapter.model.ready_times import UNKNOWN, PodStart
from adapter.model.timestamps import SECOND, write_instant
from tests.autoscaler.loop_facts import LoopFacts
from tests.autoscaler.looped import HPA, OWN, window
from tests.autoscaler.specs import read_spec
from tests.support.controller import QUEUE, fpa
from tests.support.scaling import NOW, pods
from tests.support.waiting import running


def read_error(words: Sequence[str]) -> Exception | None:
    """Return an answer of the API server, or that the fence is `shut`, or a `defect`; None for no words."""
    if not words:
        return None
    other = {"shut": NotLeadingError("shut"), "defect": RuntimeError("defect")}
    return other.get(words[0]) or KubernetesError(int(words[0]), "", " ".join(words[1:]))


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


class LoopScript(LoopFacts):
    """What a line of a script does, and what is said then."""

    def __init__(self) -> None:
        super().__init__()
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
        """Have the queue, or another metric of no pods, ask for so many replicas."""
        metric, _, text = f"queue={text}".rpartition("=")
        name, (late, _, count) = metric.rpartition("=")[2], text.rpartition(":")
        if text in {"none", "not-yet"}:
            reason = NOT_YET if text == "not-yet" else "NoMetrics"
            self.bench.show(name, Unavailable(reason, text))
        else:
            self.bench.show(name, ExternalReading([round(float(count) * 1000)], overdue=late))

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
        stored = full_status(status, changes, credited=bench.server.credited) if status is not None else None
        bench.controller.put(msgspec.structs.replace(self._read("web", words), status=stored))

    def again(self) -> None:
        """Have the same process own the slice again."""
        self.drop()
        self.bench.controller.begin(slices.slice_of("default"), self.bench.floors)

    def drop(self) -> None:
        """Have the slice given up."""
        self.bench.controller.drop(slices.slice_of("default"))

    def without_history(self) -> None:
        self.bench.controller.context = self.bench.controller.context._replace(keeps_history=False)

    def remove(self) -> None:
        self.bench.controller.remove(self.bench.state.key)

    def set(self, name: str, replicas: str, writer: str, *how: str) -> None:
        """Scale as another client, `since` so many seconds after the beginning, by its own clock."""
        server, words = self.bench.server, dict(word.partition("=")[::2] for word in how)
        server.set(
            name, int(replicas), writer.strip("-"), told="untold" not in words, uid=words.get("uid", "")
        )
        if since := words.get("since"):
            time = since if since == "soon" else write_instant(NOW + int(since) * SECOND)
            server.scales[name] = server.scales[name]._replace(since=time)
            server.tell(name)

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

    def make_pods(self) -> None:
        """Have the pods that were asked for exist, and the caches tell so; they are not Ready."""
        self.tell()
        listed, made = list(self.bench.pods.pods["app=web"]), round(self.bench.clock.wall() * SECOND)
        more = range(len(listed), self.bench.server.scales["web"].replicas)
        listed += [PodFacts(f"web-{number}", "Pending", created=made) for number in more]
        self.bench.pods.pods["app=web"] = listed

    async def grow(self, metric: str, first: str, more: str, count: str) -> None:
        """Have a metric show more each second, and the pods that are asked for exist."""
        for second in range(1, int(count) + 1):
            self.want(f"{metric}={float(first) + second * float(more)}")
            await self.step("1")
            self.make_pods()

    def unlisted(self) -> None:
        """Have a cache of pods that starts again."""
        self.bench.pods.pods = UnlistedPods()

    def starts(self, *pods: str) -> None:
        """Have pods be Ready after so many seconds, or with their parts as `1/2/3/4`."""
        for each in pods:
            *parts, ready = [int(part) * 1000 for part in each.split("/")]
            scheduled, initialized, started = parts or [UNKNOWN] * 3
            start = PodStart(scheduled, initialized, started, ready)
            self.bench.state.target.ledger.note(start)

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
