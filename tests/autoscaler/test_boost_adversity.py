"""Floors of boosted HorizontalPodAutoscalers when things meet: over random timelines, and across leaders."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, BOOST
from adapter.model.autoscaling.floor import LONGEST, Floor, floor_of
from adapter.model.timestamps import SECOND
from tests.autoscaler.looped import HPA, NATIVE, ON, OWN, LoopBench
from tests.support.controller import QUEUE, WatchedServer, fpa, shown_document
from tests.support.scaling import cpu_metric, pods

# -- any timeline --------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.sampled_from([0.1, 1.0, 16.0, 40.0, 310.0])),
        st.tuples(st.just("time"), st.sampled_from([0.1, 1.0])),
        st.tuples(st.just("want"), st.none() | st.integers(0, 20)),
        st.tuples(st.just("want"), st.integers(4, 20)),
        st.tuples(st.just("sync"), st.integers(1, 8)),
        st.tuples(st.just("write"), st.integers(0, 20), st.sampled_from([NATIVE, "argocd", "fastpath"])),
        st.tuples(st.just("tell")),
        st.tuples(st.just("mode"), st.sampled_from([BOOST, ADVISE, ""])),
        st.tuples(st.just("leader")),
        st.tuples(st.just("target"), st.integers(0, 8)),
        st.tuples(st.just("lose"), st.booleans()),
        st.tuples(st.just("fail"), st.booleans()),
        st.tuples(st.just("fence"), st.booleans()),
        st.tuples(st.just("refuse"), st.booleans()),
        st.tuples(st.just("hold"), st.booleans()),
    ),
    max_size=25,
)


class Timeline:
    """A boosted HPA, those that scale its target, and the faults between them."""

    def __init__(self) -> None:
        self.bench = LoopBench()
        self.bench.server = self.server = WatchedServer(self.check_write, self.hold)
        self.bench.start()
        self.mode = BOOST
        self.made = 0
        self.held, self.until = 0, 0
        """The count that was written last and that no one else has changed since, and until when it holds."""
        self.server.set("web", 4)
        self.bench.pods.pods["app=web"] = pods(20)
        self.put()

    @property
    def now(self) -> int:
        return round(self.bench.clock.wall() * SECOND)

    @property
    def entry(self) -> Floor | None:
        return self.bench.floors.entries.get("uid-1")

    def put(self, published: Floor | None = None) -> None:
        shown = self.server.scales["web"].replicas
        self.bench.boost(ON._replace(mode=self.mode, shown=shown), published=published)

    def check_write(self, target: ScaleTarget, replicas: int) -> None:
        """Check that a raise, and nothing else, is written, and that its floor was published before."""
        assert self.mode == BOOST
        assert replicas > target.replicas > 0
        entry = self.entry
        assert entry is not None
        assert entry.replicas >= replicas
        assert self.now < entry.until

    def hold(self, replicas: int) -> None:
        """Note a count that has landed. Its floor may be gone if the HPA asks for no boosting any more."""
        if self.mode:
            assert self.entry is not None
            self.held, self.until = replicas, self.entry.until

    def check(self) -> None:
        """Check that the floor covers what was written until it ends, which is soon."""
        entry = self.entry
        if entry is not None and entry.replicas:
            assert entry.until <= self.now + LONGEST
            assert entry.shown is None or entry.until <= entry.shown + entry.hold
        if not self.held:
            return
        if entry is None or self.now >= entry.until:
            assert self.now >= self.until
            self.held = 0
        else:
            assert entry.replicas >= self.held
            self.until = entry.until

    async def step(self, what: str, *values: Any) -> None:  # noqa: C901, PLR0912 - one branch for each step
        bench, server = self.bench, self.server
        if what in {"write", "mode", "target", "fail", "fence"}:
            self.held = 0
        if what == "time":
            await bench.step(values[0])
        elif what == "want":
            bench.want(values[0])
        elif what == "sync":  # as the HPA controller: its own metrics, and the floor
            count = max(values[0], floor_of(self.entry, self.now, 20))
            if server.scales["web"].replicas:
                self.held = min(self.held, count)
                server.set("web", count, NATIVE)
                await self.step("show")
        elif what == "write":
            server.set("web", values[0], values[1], told=False)
        elif what == "tell":
            server.tell("web")
        elif what == "leader":
            await self.step("hold", False)
            bench.close()
            bench.start()
            await self.step("show")
        elif what == "target":
            self.made += 1
            server.set("web", values[0], "helm", uid=f"made-{self.made}")
        elif what == "mode":
            self.mode = values[0]
            if self.mode:
                self.put()
            else:
                bench.controller.remove(HPA)
        elif what == "show" and self.mode:
            self.put(self.entry)
        elif what == "lose":
            server.lose = values[0]
        elif what == "fail":
            server.fail = "refused" if values[0] else ""
        elif what == "fence":
            server.refusal = NotLeadingError() if values[0] else None
        elif what == "refuse":
            bench.floors.fail = KubernetesError(500, "InternalError", "no") if values[0] else None
        elif what == "hold":
            if bench.floors.gate is not None:
                bench.floors.gate.set()
            bench.floors.gate = asyncio.Event() if values[0] else None
        for _ in range(5):
            await asyncio.sleep(0)
        self.check()

    async def recover(self) -> None:
        """End all faults: the target is raised, and then the floor ends."""
        for what in ("lose", "fail", "fence", "refuse", "hold"):
            await self.step(what, False)
        await self.step("tell")
        await self.step("time", 1.0)
        await self.step("time", 310.0)  # a reversal among the steps does not count with the one that follows
        if self.mode == ADVISE:
            assert self.entry is None or not self.entry.replicas
        if not self.mode:
            assert self.entry is None
        self.mode = BOOST
        self.server.set("web", 4)
        self.bench.want(20)
        self.bench.boost(ON._replace(shown=4, digest="another"))
        for _ in range(40):
            await self.step("time", 16.0)
            await self.step("tell")
        assert self.server.scales["web"].replicas == 20
        await self.step("sync", 8)
        for _ in range(40):
            await self.step("time", 16.0)
        assert floor_of(self.entry, self.now, 20) == 0


@pytest.mark.timeout(60)
@given(steps=STEPS)
@settings(phases=[Phase.explicit, Phase.generate])
def test_a_floor_covers_what_was_written_until_it_ends(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        timeline = Timeline()
        try:
            for step in steps:
                await timeline.step(*step)
            await timeline.recover()
        finally:
            timeline.bench.close()

    asyncio.run(run())


# -- every order ---------------------------------------------------------------------------------------------

EVENTS: list[tuple[Any, ...]] = [
    ("want", None),
    ("sync", 3),
    ("write", 2, "argocd"),
    ("tell",),
    ("mode", ""),
    ("target", 6),
    ("lose", True),
    ("fence", True),
]
STAGES = ("before its floor is accepted", "before its slot", "before its answer", "after it")


async def raise_between(events: list[tuple[int, tuple[Any, ...]]]) -> None:
    """Raise a target; each event happens at one of the `STAGES`. A check follows each step of both."""
    timeline = Timeline()
    bench, server = timeline.bench, timeline.server
    gates = [asyncio.Event() for _ in range(3)]
    bench.floors.gate, server.turn, server.gate = gates
    bench.want(12)
    await timeline.step("time", 1.0)
    for stage in range(len(STAGES)):
        for at, event in events:
            if at == stage:
                await timeline.step(*event)
        if stage < len(gates):
            gates[stage].set()
            await timeline.step("time", 0.1)
    bench.floors.gate = None
    for fault in ("lose", "fence"):
        await timeline.step(fault, False)
    for seconds in (1.0, 310.0):
        await timeline.step("tell")
        await timeline.step("time", seconds)
    assert not bench.monitoring.registry.get_sample_value("fastpath_scaler_unexpected_errors_total")
    bench.close()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("first", EVENTS, ids=str)
async def test_a_raise_stands_on_its_floor_whatever_happens_between_its_steps(first: tuple[Any, ...]) -> None:
    """Its floor is stored, its slot comes, its Scale is written: two events happen between any of these."""
    stages = range(len(STAGES))
    for second in EVENTS:
        for early, late in itertools.combinations_with_replacement(stages, 2):
            await raise_between([(early, first), (late, second)])


# -- what a timeline does not show ---------------------------------------------------------------------------


@pytest.fixture
def bench() -> LoopBench:
    return LoopBench()


async def test_a_minimum_of_zero_that_rests_on_the_handshake(bench: LoopBench) -> None:
    """The API takes it, for the handshake is an External metric."""
    bench.boost(replicas=4, metrics=[cpu_metric(50)], minReplicas=0)
    assert not bench.state.spec.violations


# -- a change of leader --------------------------------------------------------------------------------------


async def test_an_autoscaler_of_ours_may_have_the_same_name(bench: LoopBench) -> None:
    bench.want(8)
    bench.boost(replicas=4)
    bench.put(fpa(QUEUE, mode="Paused"))
    await bench.step()

    assert set(bench.controller.names()) == {HPA, OWN}
    assert (HPA[:2], str(HPA)) == (("default", "web"), "default/hpa/web")
    assert shown_document(bench.controller)["mode"] == "Paused"
