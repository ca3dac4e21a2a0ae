"""The callers of a soak, and the check of every answer.

A request that succeeded before must succeed whatever happens: with values from Prometheus, or with the last
answer and its own time. A new request may fail while Prometheus is unreachable, and only then.
"""

import asyncio
import datetime as dt
import json
import random
import urllib.parse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from adapter.model.quantity import format_milli
from benchmarks import common, load
from benchmarks.load import Connection, Reply
from benchmarks.soak_world import LEVEL, QUEUE, World, level
from benchmarks.stage import App
from benchmarks.stepping import CLOCK

_CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
_CONNECTIONS = 8
_OLDEST = 31.0  # what is served while Prometheus is silent, with the second that a timestamp is cut to
_EXTERNAL_SHARE = 0.1
_KEPT_TEXTS = 10


class Callers:
    """Send requests until cancelled. `counts` has all results, `wrong` the first wrong ones."""

    def __init__(self, world: World, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.calm: list[float] = []
        """Latencies of warm requests while Prometheus was reachable; `take_latency` removes them."""
        self._world = world
        self._random = random.Random(seed)
        self._fresh = 0

    async def run(self, requests_per_second: float, fresh_per_second: float) -> None:
        """Send the autoscalers' requests over some connections, and new ones beside them."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONNECTIONS):
                group.create_task(self._pace(_CONNECTIONS / requests_per_second, fresh=False))
            group.create_task(self._pace(1 / fresh_per_second, fresh=True))

    async def hang_up(self, callers: int) -> None:
        """Disconnect before the answer, in the middle of a request, and in the middle of a TLS handshake."""
        for number in range(callers):
            path, *_ = self._new_question()
            request = load.render(path)
            if number % 3 == 2:
                _, writer = await asyncio.open_connection("127.0.0.1", self._world.port)
                writer.write(b"\x16\x03\x01")
            else:
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", self._world.port, ssl=self._world.stage.tls, server_hostname="localhost"
                )
                writer.write(request if number % 3 else request[: len(request) // 2])
            await asyncio.sleep(0)
            writer.transport.abort()
        self.counts["hung_up"] += callers

    async def ask_all(self) -> None:
        """Send every recurring request once, so that a last answer exists."""
        connection = await Connection.open(self._world.port, self._world.stage.tls)
        for path, app in self._questions():
            self.counts["warm"] += 1
            self._judge(path, app, await connection.get(load.render(path)), excused=False)
        connection.close()

    async def fill(self, questions: int) -> None:
        """Send many new requests, one after the other on each connection, to fill the caches."""
        left = iter(range(questions))

        async def ask() -> None:
            connection = await Connection.open(self._world.port, self._world.stage.tls)
            for _ in left:
                path, app = self._new_question()
                self.counts["filled"] += 1
                self._judge(path, app, await connection.get(load.render(path)), excused=False)
            connection.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(_CONNECTIONS):
                group.create_task(ask())

    def knows_pods(self) -> bool:
        """Return whether the adapter sees the present pods of the app whose pods are replaced."""
        path = _path(self._world.replaced, f"app={self._world.replaced.name}")
        _, body = self._world.stage.fetch(self._world.port, path)
        items = json.loads(body).get("items", ())
        return {item["describedObject"]["name"] for item in items} == set(self._world.replaced.pods)

    async def _pace(self, period: float, *, fresh: bool) -> None:
        connection: Connection | None = None
        due = CLOCK.monotonic() + self._random.random() * period
        while True:
            # what was missed in a stop is not made up for
            due = max(due + period, CLOCK.monotonic() - period)
            await asyncio.sleep(due - CLOCK.monotonic())
            path, app = self._new_question() if fresh else self._question()
            try:
                connection = connection or await Connection.open(self._world.port, self._world.stage.tls)
                begun = CLOCK.monotonic()
                answer = connection.get(load.render(path))
                answer.add_done_callback(_note_seen)
                reply = await asyncio.shield(answer)  # the answer still arrives after a cancellation
            except OSError as error:
                self._note("broken", f"{path}: {error!r}")
                connection = None
                continue
            took = CLOCK.monotonic() - begun
            disturbed = self._world.was_disturbed(begun)
            if not fresh and not disturbed:
                self.calm.append(took)
            self.counts["fresh" if fresh else "warm"] += 1
            self._judge(path, app, reply, excused=fresh and disturbed)

    def _question(self) -> tuple[str, App | None]:
        questions = self._questions()
        return questions[0] if self._random.random() < _EXTERNAL_SHARE else self._random.choice(questions)

    def _questions(self) -> list[tuple[str, App | None]]:
        world = self._world
        apps: list[App] = [*world.apps, world.replaced]
        external = f"{_EXTERNAL}/{world.apps[0].namespace}/{QUEUE}"
        return [(external, None), *((_path(app, f"app={app.name}"), app) for app in apps)]

    def _new_question(self) -> tuple[str, App]:
        """Return a request with a new selector: of pods (without a query) or of series."""
        self._fresh += 1
        app = self._random.choice(self._world.apps)
        if self._fresh % 2:
            return _path(app, f"app={app.name},probe!=v{self._fresh}"), app
        return _path(app, f"app={app.name}", f"probe notin (v{self._fresh})"), app

    def _judge(self, path: str, app: App | None, reply: Reply, *, excused: bool) -> None:
        if reply.status != 200:
            if excused and reply.status in {500, 504}:
                self.counts["refused"] += 1
            else:
                self._note("failed", f"{path}: HTTP status {reply.status}: {reply.body[:500].decode()}")
            return
        items = json.loads(reply.body)["items"]
        said = self._fault_of(items, app)
        if said:
            self._note("wrong", f"{path}: {said}: {reply.body[:500].decode()}")
        else:
            self.counts["right"] += 1

    def _fault_of(self, items: Sequence[dict[str, Any]], app: App | None) -> str:
        """Return what is wrong with the items, or ""."""
        world = self._world
        if app is None:
            names = [item["metricLabels"]["queue"] for item in items]
            numbers, expected = world.queues, set(world.queues)
        else:
            names = [item["describedObject"]["name"] for item in items]
            numbers, expected = world.numbers, set(app.pods)
        now = CLOCK.wall()
        for name, item in zip(names, items, strict=True):
            when = dt.datetime.fromisoformat(item["timestamp"]).timestamp()
            if not now - _OLDEST <= when <= now + 1:
                return f"{name} is of a time {now - when:.1f} s ago"
            if item["value"] != format_milli(1000 * level(numbers[name], when)):
                return f"{name} has {item['value']}, and its sample says {level(numbers[name], when)}"
        changing = {*world.replaced.pods, *world.spare.pods}
        if app is not None and expected <= changing:
            return "" if names and changing.issuperset(names) else "pods that are not there"
        return "" if sorted(names) == sorted(expected) else f"there should be {len(expected)} values"

    def _note(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        if len(self.wrong) < _KEPT_TEXTS:
            self.wrong.append(f"{kind} ({self._world.story}): {text}")

    def take_latency(self) -> dict[str, float]:
        """Return the latencies of warm requests since the last call, in milliseconds, and reset them."""
        took, self.calm = self.calm, []
        return {
            f"p{round(share * 100)}_ms": common.percentile(took, share) * 1000 if took else 0.0
            for share in (0.5, 0.99)
        }


def _note_seen(answer: asyncio.Future[Reply]) -> None:
    """Retrieve the exception of a task that has no other reader."""
    if not answer.cancelled():
        answer.exception()


def _path(app: App, selector: str, series: str = "") -> str:
    query = {"labelSelector": selector} | ({"metricLabelSelector": series} if series else {})
    return f"{_CUSTOM}/{app.namespace}/pods/*/{LEVEL}?{urllib.parse.urlencode(query)}"
