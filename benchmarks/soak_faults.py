"""The faults of a soak: each once a round, in an order of the seed, with its recovery.

A fault ends when its effect has been seen to come and go: a counted reload, a certificate in a handshake,
watches that are open again. The run fails if that does not happen.
"""

import asyncio
import contextlib
import random
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable

from benchmarks import load
from benchmarks.soak_callers import Callers
from benchmarks.soak_world import World
from benchmarks.stepping import CLOCK

_HANGING_UP = 30
_MOST_COPIES = 5


class Faults:
    """Makes the faults.

    `counts` has the number of each; `silence` is how long Prometheus is away at most, in seconds.
    """

    def __init__(self, world: World, callers: Callers, seed: int, silence: float) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._callers = callers
        self._random = random.Random(seed)
        self._silence = silence
        self._copies = 0

    async def round(self, seconds: float) -> None:
        """Make every fault once, over `seconds` or as long as they take; the load rises and falls once."""
        names = list(self.table)
        self._random.shuffle(names)
        begun = CLOCK.monotonic()
        async with asyncio.TaskGroup() as group:
            # is found by looking now and then: the others need not wait
            group.create_task(self._rotate_certificate())
            for number, name in enumerate(names):
                self._world.show_load(high=2 * number < len(names))
                await asyncio.sleep(begun + seconds * number / len(names) - CLOCK.monotonic())
                self._world.story = f"{name} after {self._world.story.partition(' ')[0]}"
                await self.table[name]()
                self.counts[name] += 1
            await asyncio.sleep(begun + seconds - CLOCK.monotonic())

    @property
    def table(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The faults of a round, by name."""
        return {
            "prometheus_stands_still": self._pause_prometheus,
            "prometheus_killed": self._kill_prometheus,
            "watches_cut": self._cut_watches,
            "rules_broken": self._break_rules,
            "rules_reloaded": self._reload_rules,
            "callers_hang_up": self._hang_up,
            "pods_replaced": self._replace_pods,
        }

    async def _pause_prometheus(self) -> None:
        async with self._world.disturbing():
            self._world.prometheus.pause()
            try:
                await asyncio.sleep(self._silence)
            finally:
                self._world.prometheus.resume()

    async def _kill_prometheus(self) -> None:
        async with self._world.disturbing():
            await asyncio.to_thread(self._world.prometheus.kill)
            await asyncio.sleep(self._silence / 2)
            await asyncio.to_thread(self._world.prometheus.start)

    async def _cut_watches(self) -> None:
        before = self._world.cluster.cut_watches()
        await load.wait_for(
            lambda: self._world.cluster.open_watches >= before, f"{before} watches to be open again"
        )

    async def _break_rules(self) -> None:
        await self._rewrite(self._world.break_rules, "refused")
        await self._rewrite(lambda: self._world.write_rules(self._copies), "applied")

    async def _reload_rules(self) -> None:
        self._copies = (self._copies + 1) % _MOST_COPIES
        await self._rewrite(lambda: self._world.write_rules(self._copies), "applied")

    async def _rewrite(self, write: Callable[[], None], outcome: str) -> None:
        """Write the file and wait until the program has counted the result."""

        def count() -> float | None:
            stage, port = self._world.stage, self._world.port
            return stage.metric(port, "fastpath_config_reloads_total", outcome=outcome)

        before = await asyncio.to_thread(count)
        write()
        await load.wait_for(lambda: count() != before, f"the rules to be {outcome}")

    async def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            await self._callers.hang_up(_HANGING_UP)

    async def _replace_pods(self) -> None:
        self._world.replace_pods()
        await load.wait_for(self._callers.knows_pods, "the new pods to be known")

    async def _rotate_certificate(self) -> None:
        issued = self._world.stage.issue()

        def is_presented() -> bool:
            shown = ssl.get_server_certificate(("127.0.0.1", self._world.port), timeout=10)
            return ssl.PEM_cert_to_DER_cert(shown) == issued

        await load.wait_for(is_presented, "the new certificate in a handshake")
        self.counts["certificate_rotated"] += 1
