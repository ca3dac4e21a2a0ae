"""The Lease of a scaler's own, with the API server and the clocks of `support.slices`.

`scripts/members` has stories of one scaler. After `> ` something happens: `start` until it is a member,
`stop`, `until` it is what is said, in so many seconds; a `mode` of its requests, seconds that requests
`take`, a `shift` of its clock; its Lease is edited to have a `holder`, or deleted, or changed before each
write (`meddle`) or the next one (`intervene`), or its writes are refused; its work `drains` for some
seconds at its end, or `fails` then. Below it is what is known: `look`, `seen` by the work at its end,
`problem` and `log`.

`scripts/test tests/kubernetes/ownership/test_membership.py --update` writes it.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.ownership.lease import KubernetesLeases
from adapter.kubernetes.ownership.membership import MemberSettings, Membership
from adapter.kubernetes.ownership.term import LeaseFence
from tests.support.scripts import Scripts
from tests.support.slices import NAME, Process, SliceWorld

SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "members")
ME = MemberSettings("web-1_a", NAME)


def test_no_scaler_clears_the_lease_while_a_write_may_be_under_way() -> None:
    """What a write may take, and how far the clock may be off unseen, stay below the lease duration."""
    assert ME.renew_deadline + ME.tolerance < ME.lease_duration


class Member(Process):
    """A scaler that owns no slices."""

    def __init__(self, world: SliceWorld, retry_period: float = 2.0) -> None:
        super().__init__(world, "pod", MemberSettings("", NAME, retry_period=retry_period))
        world.processes.append(self)
        self.drains, self.fails = 0.0, ""
        self.seen: list[str] = []
        self.fences: list[LeaseFence] = []
        self.ended = 0

    async def _main(self) -> None:
        leases = KubernetesLeases(self.context.client, "default", self.lease)
        await Membership(leases, self.settings, self.context).run(self._serve, self._pass, self._pass)

    async def _pass(self) -> None:
        """Prepare nothing, and leave at once."""

    async def _serve(self, fence: LeaseFence) -> NoReturn:
        self.fences.append(fence)
        try:
            while True:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.drains)
            self.seen.append(f"held by {self.holder}, the fence is {'open' if fence.left() else 'shut'}")
            self.ended += 1
            if self.fails:
                raise RuntimeError(self.fails)

    @property
    def is_member(self) -> bool:
        """Whether it may write, and says so."""
        assert self.sample("leader_election_master_status", name=NAME) == (len(self.fences) > self.ended)
        return len(self.fences) > self.ended and self.fences[-1].left() > 0

    @property
    def holder(self) -> str:
        holder = self.world.holder(self.lease)
        return "itself" if holder == self.identity else holder or "none"

    def sample(self, metric: str, **labels: str) -> float:
        return self.monitoring.registry.get_sample_value(metric, labels) or 0.0


class MemberScript:
    """A member, and what is said of it."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self.world = SliceWorld()
        self.member = Member(self.world)

    def retry(self, seconds: str) -> None:
        self.world.close()
        self.world = SliceWorld()
        self.member = Member(self.world, float(seconds))

    def drains(self, seconds: str) -> None:
        self.member.drains = float(seconds)

    def fails(self, *words: str) -> None:
        self.member.fails = " ".join(words)

    def start(self) -> None:
        self.until("member", "0", "to", "1")

    def run(self, seconds: str) -> None:
        self.world.run(float(seconds))

    def until(self, what: str, least: str, _to: str, most: str) -> None:
        member = self.member
        conditions: dict[str, Callable[[], bool]] = {
            "member": lambda: member.is_member,
            "outsider": lambda: not member.is_member,
            "ended": lambda: member.ended > 0,
            "again": lambda: len(member.fences) == 2,
            "stopped": member.task.done,
        }
        took = self.world.run_until(conditions[what], float(most) + 1)
        assert float(least) <= took < float(most), f"{what}: {took}"

    def stop(self, least: str, _to: str, most: str) -> None:
        self.member.leave()
        self.until("stopped", least, "to", most)

    def mode(self, mode: str) -> None:
        self.member.mode = mode

    def take(self, seconds: str) -> None:
        self.world.dice = cast("random.Random", SimpleNamespace(choice=lambda _: float(seconds)))

    def shift(self, seconds: str) -> None:
        self.member.shift = float(seconds)

    def holder(self, holder: str = "") -> None:
        self.world.edit(self.member.lease, holderIdentity=holder)

    def put(self) -> None:
        lease = self.member.lease
        self.world.put(lease, {"metadata": {"name": lease}, "spec": {"holderIdentity": ""}})

    def delete(self) -> None:
        self.world.delete(self.member.lease)

    def intervene(self, holder: str = "") -> None:
        holders = iter([holder or self.member.identity])

        def intervene(name: str) -> None:
            for other in holders:
                self.world.edit(name, holderIdentity=other)

        self.world.before_write = intervene

    def meddle(self) -> None:
        self.world.before_write = self.world.annotate

    def refuse(self, code: str, *words: str) -> None:
        def refuse(_name: str) -> None:
            raise KubernetesError(int(code), "Refused", " ".join(words))

        self.world.before_write = refuse

    def accept(self) -> None:
        self.world.before_write = lambda _name: None

    def since_renewal(self, least: str, _to: str, most: str) -> None:
        assert float(least) <= self.world.now - self.member.fences[0].sent.monotonic < float(most)

    def seen(self) -> list[str]:
        return self.member.seen

    def problem(self) -> str:
        return self.member.problems.active()["lease", ""]

    def log(self, *words: str) -> str:
        return "yes" if " ".join(words) in self._log.text else "no"

    def look(self) -> str:
        member = self.member
        outcomes = ("success", "failed", "conflict")
        counts = {each: member.sample("fastpath_lease_renewals_total", outcome=each) for each in outcomes}
        told = [
            "a member" if member.is_member else "no member",
            f"held by {member.holder}" if member.lease in self.world.leases else "no Lease",
            *(
                f"fence {n} {'closed' if fence.closed else 'open'}"
                for n, fence in enumerate(member.fences, 1)
            ),
            *(f"{count:g} renewals {outcome}" for outcome, count in counts.items() if count),
            f"{member.calls} calls",
            *(" ".join(key).strip() for key in member.problems.active()),
        ]
        if transitions := self.world.leases.get(member.lease, {}).get("spec", {}).get("leaseTransitions"):
            told.append(f"{transitions} transitions")
        return ", ".join(told)


@pytest.fixture
def script(caplog: pytest.LogCaptureFixture) -> Iterator[MemberScript]:
    script = MemberScript(caplog)
    yield script
    script.world.close()


@pytest.mark.parametrize("title", SCRIPTS.titles)
def test_script(title: str, script: MemberScript, pytestconfig: pytest.Config) -> None:
    said = list[str]()
    for line in SCRIPTS.lines(title):
        verb, *words = line.split(" ")
        answer = getattr(script, verb.replace("-", "_"))(*words)
        said += [f"> {line}", *([answer] if isinstance(answer, str) else answer or [])]
    SCRIPTS.check(title, said, pytestconfig)
