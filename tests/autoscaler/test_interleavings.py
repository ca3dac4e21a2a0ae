"""The loop under combined faults: other writers, late caches, lost writes, clocks, specs, new targets.

At every write of ours: within the limits of the spec as it is then, never down on values that are absent or
overdue, never beside a pause or another autoscaler. And when all faults are over, the workload has what is
wanted: nothing stays stuck.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.observation import ExternalReading, Reading, Unavailable
from adapter.autoscaler.interfaces import Key
from adapter.errors import NotLeadingError
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from tests.support.controller import QUEUE, Bench, WatchedServer, fpa
from tests.support.scaling import pods

KEY = Key("default", "web")
BEHAVIOR = {
    "scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}
GONE = Unavailable("NoMetrics", "nothing")

SPECS = st.fixed_dictionaries(
    {"minReplicas": st.integers(0, 3), "maxReplicas": st.integers(3, 20)},
    optional={"mode": st.sampled_from(["Auto", "Advise", "Paused"])},
)
READINGS = st.one_of(
    st.integers(0, 25).map(lambda count: ExternalReading([count * 1000])),
    st.integers(0, 25).map(lambda count: ExternalReading([count * 1000], overdue="late")),
    st.just(GONE),
    st.just(ExternalReading([-1000])),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.sampled_from([0.0, 0.06, 1.0, 20.0, 100.0])),
        st.tuples(st.just("time"), st.sampled_from([0.06, 1.0])),
        st.tuples(st.just("reading"), READINGS),
        st.tuples(st.just("reading"), READINGS),
        st.tuples(st.just("write"), st.integers(0, 25), st.sampled_from(["kubectl", ""]), st.booleans()),
        st.tuples(st.just("recreate"), st.integers(0, 25), st.booleans()),
        st.tuples(st.just("tell")),
        st.tuples(st.just("spec"), SPECS),
        st.tuples(st.just("rival"), st.booleans()),
        st.tuples(st.just("turn"), st.booleans()),
        st.tuples(st.just("gate"), st.booleans()),
        st.tuples(st.just("lose"), st.booleans()),
        st.tuples(st.just("fail"), st.booleans()),
        st.tuples(st.just("fence"), st.booleans()),
        st.tuples(st.just("clock"), st.integers(-4000, 4000)),
        st.tuples(st.just("object"), st.integers(0, 3)),
    ),
    max_size=30,
)


class FaultyAutoscaler:
    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.server = WatchedServer(lambda _, replicas: self.check(replicas))
        self.bench.start()
        self.spec: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 20}
        self.uid = 0
        self.recreated = 0
        self.reading: Reading = GONE
        self.put(4)

    def put(self, replicas: int | None = None) -> None:
        self.bench.sources.readings["queue"] = self.reading
        self.bench.put(fpa(QUEUE, uid=f"uid-{self.uid}", behavior=BEHAVIOR, **self.spec), replicas=replicas)

    def check(self, count: int) -> None:
        """Look at a count that is sent now."""
        work = self.bench.controller.find(KEY)
        assert work is not None
        assert self.spec.get("mode", "Auto") == "Auto"
        assert self.bench.rivals.names == ()
        assert self.spec["minReplicas"] <= count <= self.spec["maxReplicas"]
        seen = work.subscriptions.find_target()
        assert isinstance(seen, ScaleTarget)
        before = seen.replicas
        is_value = (
            isinstance(self.reading, ExternalReading)
            and not self.reading.overdue
            and min(self.reading.values) >= 0
        )
        assert is_value or count >= min(before, self.spec["maxReplicas"])
        assert before != 0 or self.spec["minReplicas"] == 0 or work.memory.conflicts.own_zero

    async def step(self, what: str, *values: Any) -> None:  # noqa: C901, PLR0912 - one branch for each fault
        bench, server = self.bench, self.bench.server
        if what == "time":
            await bench.step(values[0])
        elif what == "reading":
            self.reading = bench.sources.readings["queue"] = values[0]
            for source in bench.sources.opened:
                source.reading = values[0]
            bench.controller.loop.touch(KEY)
        elif what == "write":
            replicas, manager, told = values
            server.set("web", replicas, manager, told=told)
        elif what == "recreate":
            self.recreated += 1
            server.set("web", values[0], "helm", uid=f"made-{self.recreated}", told=values[1])
        elif what == "tell":
            server.tell("web")
            bench.pods.pods["app=web"] = pods(server.scales["web"].replicas)
        elif what == "spec":
            self.spec = values[0]
            self.put()
        elif what == "rival":
            bench.rivals.names = ("HorizontalPodAutoscaler/web",) if values[0] else ()
        elif what in {"turn", "gate"}:
            event: asyncio.Event | None = getattr(server, what)
            if event is not None:
                event.set()
            setattr(server, what, asyncio.Event() if values[0] else None)
        elif what == "lose":
            server.lose = values[0]
        elif what == "fail":
            server.fail = "refused" if values[0] else ""
        elif what == "fence":
            server.refusal = NotLeadingError("shut") if values[0] else None
        elif what == "clock":
            bench.clock.skew += values[0]
        else:
            self.uid = values[0]
            self.put()
        await asyncio.sleep(0)

    async def recover(self) -> None:
        for what in ("turn", "gate", "lose", "fail", "fence", "rival"):
            await self.step(what, False)
        self.spec = {"minReplicas": 1, "maxReplicas": 20}
        self.put()
        await self.step("reading", ExternalReading([7000]))
        server = self.bench.server
        for _ in range(60):
            await self.step("tell")
            await self.bench.step(16)
        if not server.scales["web"].replicas:  # a zero of another writer: that writer ends it
            server.set("web", 3)
            for _ in range(60):
                await self.step("tell")
                await self.bench.step(16)
        assert server.scales["web"].replicas == 7


@pytest.mark.timeout(600)
@given(steps=STEPS)
def test_no_interleaving_does_harm_or_lasts(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        world = FaultyAutoscaler()
        try:
            for what, *values in steps:
                await world.step(what, *values)
            await world.recover()
        finally:
            world.bench.close()

    asyncio.run(run())
