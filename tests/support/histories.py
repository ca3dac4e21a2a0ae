"""Histories of scalers that share slices: what happens to them, how long a slice is free, and the verdict.

Two that could write for one slice are a failure at any time. So is a slice that has no owner that runs, once
that is not excused. A fault excuses free slices for the time in which the scalers have to deal with it, see
`HAND_OVER` and `FAIL_OVER`. A fault that comes while they are excused, before the scalers have dealt with the
last one, excuses them for `OVERLAP`. So does the time in which no scaler is healthy. When nothing is excused
any more, the healthy scalers own all slices, and none two more than another.

A process may stay frozen or cut off for as long as it likes. What is only half ill excuses free slices until
it is well: it keeps its share as long as it renews its Lease, and may not see or not write what it should.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from tests.support.slices import Process, SliceWorld

HAND_OVER = 1.5
"""Seconds from the release of a slice until another process owns it."""

FAIL_OVER = 18.0
"""Seconds from when a process ends, is frozen or loses the API server: 15 are the duration of its Lease."""

OVERLAP = 34.0
"""Seconds after the last of several faults, from when late requests have landed: an owner that sees
nothing goes on for 10, the reflector pauses for 4, a member that is gone has 15, the next look is after up to
4, and 1 is for reads and writes.
"""

LOST = 15.0
"""The duration of a Lease."""

_LATE = 12.0
"""Seconds after which the last request has landed."""

SETTLED = 14.0
"""Seconds until the shares are even where nothing happens any more: after 10 slices move for that alone."""

_MONITORING = Monitoring()

Fault = tuple[Any, ...]
"""Its name, the number of a process or slice, and for how long."""

Step = tuple[float | str, Fault]
"""A fault, and what is waited for before it."""

_GONE = {"cut": FAIL_OVER, "error": FAIL_OVER, "deaf": FAIL_OVER + 10, "late": FAIL_OVER + 10 + _LATE}
"""Modes in which a process cannot renew its Lease, and in how many seconds others own its slices. If only
answers are lost, it renews it until its own deadline.
"""

_HALF = frozenset({"slow", "flaky", "stall", "lag"})
"""What a process suffers that keeps its share although it may not see, or not write, what it should."""


@dataclass(eq=False)
class _Spell:
    """A fault of a process that has an end."""

    name: str
    process: Process
    end: Callable[[], None]
    is_endless: bool = False


class History:
    """What happens in a `world`."""

    def __init__(self, world: SliceWorld, most: int) -> None:
        self.world = world
        self.most = most
        """The largest number of processes at once."""
        self._retry = world.dice.choice((2.0, 4.0))
        self._missing = 16 + self._retry
        """Seconds until a Lease counts as deleted, and a renewal causes the next look at it."""
        self.excused = 0.0
        self.longest: defaultdict[str, float] = defaultdict(float)
        """The longest time for which a slice was free after a fault of a kind, "" for several."""
        self.slack = math.inf
        """The shortest time between the end of such a time and its bound."""
        self._cause = ""
        self._spells: list[_Spell] = []
        self._parted: dict[Process, float] = {}
        """When the clocks of processes diverged last."""
        self._late = -math.inf
        """When the last request that may be late was sent."""
        self._settles = False
        """Whether no more faults begin."""
        world.taken = self._note_taken

    # -- the verdict -----------------------------------------------------------------------------------------

    @property
    def healthy(self) -> list[Process]:
        ill = {spell.process for spell in self._spells}
        return [process for process in self.world.alive if process not in ill]

    @property
    def _landed(self) -> float:
        """When all requests have landed that were sent until now."""
        return max(self.world.now, min(self._late, self.world.now) + _LATE)

    def verify(self) -> None:
        """Fail if a slice is free, or the shares are uneven, without an excuse."""
        world, healthy = self.world, self.healthy
        if not healthy:
            self.excused = max(self.excused, self._landed + OVERLAP)
        if world.now <= self.excused:
            return
        for number, since in world.free.items():
            self._judge(number, since)
        assert not world.failures, world.failures[0]
        if world.now <= self.excused + SETTLED:
            return
        assert world.is_fair(healthy), f"at {world.now:.3f} {self._cause} {world.shares(healthy)}"

    def _note_taken(self, number: int, since: float) -> None:
        if self.healthy:
            self._judge(number, since)

    def _judge(self, number: int, since: float) -> None:
        now, bound = self.world.now, max(since + HAND_OVER, self.excused)
        if now > bound:
            self.world.failures.append(f"at {now:.3f} slice {number} is free since {since:.3f} {self._cause}")
        self.longest[self._cause] = max(self.longest[self._cause], now - since)
        self.slack = min(self.slack, bound - now)

    def _excuse(self, name: str, seconds: float) -> None:
        self.verify()
        now = self.world.now
        is_alone = now > self.excused
        self._cause = name if is_alone else ""
        until = now + seconds if is_alone else max(now + seconds, self._landed + OVERLAP)
        self.excused = max(self.excused, until)

    # -- faults ----------------------------------------------------------------------------------------------

    def happen(self, fault: Fault) -> None:
        name, *details = fault
        getattr(self, f"_{name}")(*details)

    def _process(self, index: int) -> Process:
        return self.world.alive[index % len(self.world.alive)]

    def _join(self) -> None:
        if len(self.world.alive) < self.most:
            self._excuse("join", 2)
            self.world.join(retry_period=self._retry).rate = self.world.dice.uniform(0.98, 1.02)

    def _leave(self, index: int) -> None:
        if len(self.world.alive) > 1:
            process = self._process(index)
            is_well = process in self.healthy
            self._excuse("leave", HAND_OVER if is_well else FAIL_OVER + _LATE)
            process.leave()

    def _replace(self, index: int) -> None:
        process = self._process(index)
        self._join()
        if process in self.healthy:
            self._excuse("leave", HAND_OVER)
            process.leave()

    def _kill(self, index: int) -> None:
        if len(self.world.alive) > 1:
            self._excuse("kill", FAIL_OVER)
            self._process(index).kill()

    def _begin(self, name: str, process: Process, seconds: float, end: Callable[[], None]) -> _Spell:
        is_half = name in _HALF
        self._excuse(name, seconds + OVERLAP if is_half else _GONE.get(name, FAIL_OVER))
        spell = _Spell(name, process, end)
        self._spells.append(spell)
        self.world.after(seconds, lambda: None if spell.is_endless else self._end(spell))
        return spell

    def _end(self, spell: _Spell) -> None:
        if spell in self._spells:
            self._excuse(f"end of {spell.name}", FAIL_OVER)
            self._spells.remove(spell)
            spell.end()

    def _freeze(self, index: int, seconds: float, *, is_suspended: bool = False) -> None:
        process = self._process(index)
        if process.is_running:
            self._begin("freeze", process, seconds, process.thaw)
            process.suspend() if is_suspended else process.freeze()

    def _suspend(self, index: int, seconds: float) -> None:
        if self._may_part(index):
            self._freeze(index, seconds, is_suspended=True)

    def _may_part(self, index: int) -> bool:
        """Tell whether the clocks of a process may diverge: a second time could undo the first, unseen."""
        process, now = self._process(index), self.world.now
        is_first = now > self._parted.get(process, -math.inf) + 2 * LOST
        self._parted[process] = now
        return is_first

    def _mode(self, index: int, seconds: float, mode: str) -> None:
        process = self._process(index)
        if process.mode != "good":
            return
        if mode not in {"cut", "error"}:
            self._late = max(self._late, self.world.now + seconds)
        self._begin(mode, process, seconds, lambda: setattr(process, "mode", "good"))
        process.mode = mode

    def _outage(self, seconds: float, mode: str) -> None:
        for index in range(len(self.world.alive)):
            self._mode(index, seconds, mode)

    def _stall(self, index: int, seconds: float) -> None:
        process = self._process(index)
        if not process.stalled:
            self._begin("stall", process, seconds, lambda: setattr(process, "stalled", False))
            process.stalled = True

    def _lag(self, index: int, seconds: float, lag: float) -> None:
        process = self._process(index)
        if not any(spell.process is process and spell.name == "lag" for spell in self._spells):
            usual = process.lag

            def show(lag: Callable[[], float]) -> None:
                process.lag = lag
                process.cut_watches()

            self._begin("lag", process, seconds, lambda: show(usual))
            show(lambda: lag)

    def _end_watches(self, index: int) -> None:
        self._excuse("end of watches", 5)
        self._process(index).cut_watches()

    def _compact(self) -> None:
        self._excuse("compact", 5)
        self.world.compact()

    def _jump(self, index: int, seconds: float) -> None:
        if self._may_part(index):
            self._excuse("jump", self._retry + 1)
            self._process(index).shift += seconds

    def _delete_member(self, index: int) -> None:
        self._excuse("delete member", FAIL_OVER)
        self.world.delete(self._process(index).lease)

    def _delete_slice(self, number: int) -> None:
        self._excuse("delete slice", self._missing)
        self.world.delete(slices.name_of("fastpath-scaler", number % slices.COUNT))

    def _blind(self, index: int, seconds: float) -> None:
        """Delete the Lease of a slice whose owner does not see it, and is frozen before it knows that."""
        process = self._process(index)
        self._stall(index, 2 * LOST)
        for number in process.owned[:1]:
            self._delete_slice(number)

        def freeze() -> None:
            if process in self.world.alive and not self._settles:
                self._freeze(self.world.alive.index(process), seconds)

        self.world.after(self.world.dice.uniform(6, 10), freeze)

    def _unlabel(self, number: int) -> None:
        self._excuse("unlabel", self._missing + 2)
        self.world.label(slices.name_of("fastpath-scaler", number % slices.COUNT), {})

    def _annotate(self, number: int) -> None:
        self._excuse("annotate", HAND_OVER)
        self.world.annotate(slices.name_of("fastpath-scaler", number % slices.COUNT))

    # -- time ------------------------------------------------------------------------------------------------

    def wait(self, pause: float | str) -> None:
        """Let time pass: seconds, or until a Lease was written, of which the writer does not know yet."""
        world = self.world
        if pause == "settled":
            world.run(max(0.0, self.excused + SETTLED - world.now) + 0.001)
        elif isinstance(pause, str):
            before = len(world.log)
            world.run_until(lambda: any(pause in change.name for change in world.log[before:]), 3)
        else:
            world.run(pause)
        self.verify()

    def settle(self) -> None:
        """End all faults, or those that others have to deal with, and wait until the shares are even."""
        world, self._settles = self.world, True
        is_healed = world.dice.random() < 0.5
        for spell in list(self._spells):
            if is_healed or spell.name in _HALF or not self.healthy:
                self._end(spell)
        for spell in self._spells:
            spell.is_endless = True
        steady = 0
        while steady < 3:
            begun, is_late = world.begun, world.now > self.excused + SETTLED
            world.run(2)
            is_steady = world.begun == begun and not world.free and world.is_fair(self.healthy)
            steady = steady + 1 if is_steady else 0
            assert steady or not is_late, f"at {world.now:.3f} {world.shares(self.healthy)} {world.free}"


# -- strategies ----------------------------------------------------------------------------------------------

_INDEX = st.integers(0, 63)
_SECONDS = st.one_of(
    st.sampled_from([0.05, 1.0, 5.0, 9.5, 10.5, 14.5, 15.5, 17.0, 20.0, 60.0]), st.floats(0, 30)
)
_PAUSES = st.sampled_from(
    [0.0, 0.01, 0.1, 1.0, 5.0, 12.0, 16.0, "slice", "slice", "member", "settled", "settled"]
)
_MODES = st.sampled_from([*_GONE, "slow", "flaky"])
FAULTS: st.SearchStrategy[Fault] = st.one_of(
    st.tuples(st.just("join")),
    st.tuples(st.just("leave"), _INDEX),
    st.tuples(st.just("replace"), _INDEX),
    st.tuples(st.just("kill"), _INDEX),
    st.tuples(st.just("freeze"), _INDEX, _SECONDS),
    st.tuples(st.just("suspend"), _INDEX, _SECONDS),
    st.tuples(st.just("mode"), _INDEX, _SECONDS, _MODES),
    st.tuples(st.just("outage"), _SECONDS, _MODES),
    st.tuples(st.just("stall"), _INDEX, _SECONDS),
    st.tuples(st.just("lag"), _INDEX, _SECONDS, st.floats(0, 5)),
    st.tuples(st.just("end_watches"), _INDEX),
    st.tuples(st.just("compact")),
    st.tuples(st.just("jump"), _INDEX, st.floats(-100, 100)),
    st.tuples(st.just("delete_slice"), _INDEX),
    st.tuples(st.just("blind"), _INDEX, _SECONDS),
    st.tuples(st.just("delete_member"), _INDEX),
    st.tuples(st.just("annotate"), _INDEX),
    st.tuples(st.just("unlabel"), _INDEX),
)
STEPS: st.SearchStrategy[Sequence[Step]] = st.lists(st.tuples(_PAUSES, FAULTS), min_size=2, max_size=6)


def live_through(
    seed: int, members: int, most: int, steps: Sequence[Step], kind: type[History] = History
) -> History:
    world = SliceWorld(seed, _MONITORING)
    history = kind(world, most)
    try:
        for _ in range(members):
            history.happen(("join",))
            world.run(world.dice.choice((0.0, 0.1, 1.0, 3.0)))
        for pause, fault in steps:
            history.wait(pause)
            history.happen(fault)
        history.settle()
    finally:
        world.close()
    assert [process.error for process in world.processes if process.error is not None] == []
    return history
