"""Scalers that share slices, as data: never two that write for one, and none without an owner for long.

Keeper, membership, view and lock are the real ones, each scaler in a process of its own; `support.slices`
has the API servers, the networks and the time between them. `scripts/slices` and `scripts/installations` have
stories. After `> ` something happens:

- `world SEED SLICES` is another than that of seed 0 with 64 slices. `join NAME ...` starts scalers `of`
  another installation, with the uid of a `pod`, or `named` as a pod, or `unprepared` until `ready NAME`.
- `kill`, `leave`, `heal`, `freeze`, `mode`, `stall` and `resume` happen to them; to Leases `edit`, `label`
  and `delete`. A Lease is that of a slice by its number, that of a scaler, or the `lock`. `faults
  VERB=STATUS` are those of the API servers, `lock-faults` those of the lock alone.
- `run SECONDS`, and `until CONDITION LEAST to MOST`, the seconds that it takes. In `gap SECONDS below MOST`
  no slice lacks an owner for longer. After `overruled` two that write are no failure.
- Other words say what is known then; `moved` and `counts NAME` since `mark NAME`.

`scripts/test tests/kubernetes/ownership/test_scripts.py --update` writes it.
"""

import asyncio
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.ownership import installation_lock, scaler_leases
from adapter.kubernetes.ownership.lease_view import LABEL
from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from tests.support.scripts import Scripts
from tests.support.slices import NAME, Process, SliceWorld

SCRIPTS = {name: Scripts(Path(__file__).parent / "scripts" / name) for name in ("slices", "installations")}
CHANGED = "the Lease of a slice was changed or deleted, not by its owner"
MONITORING = Monitoring()


class SliceScript:
    """A world, its scalers by name, and what is said of them."""

    def __init__(self, patch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
        self._patch = patch
        self._log = log
        self._named: dict[str, Process] = {}
        self._prepared: dict[str, asyncio.Event] = {}
        self._begun = 0
        self._counted = 0, 0
        self.at = SliceWorld(0, MONITORING)

    def world(self, seed: str, count: str) -> None:
        self._patch.setattr(slices, "COUNT", int(count))
        self._patch.setattr(scaler_leases, "AT_ONCE", min(int(count), scaler_leases.AT_ONCE))
        self.at.close()
        self.at = SliceWorld(int(seed), MONITORING)

    def lease(self, text: str) -> str:
        if text.isdigit():
            return slices.name_of(NAME, int(text))
        return installation_lock.NAME if text == "lock" else self._named[text].lease

    def name(self, identity: str) -> str:
        """Return the name of a scaler; that of an installation stays."""
        names = [name for name, process in self._named.items() if process.identity == identity]
        return names[0] if names else identity or "-"

    # -- what happens --------------------------------------------------------------------------------------

    def join(self, *words: str) -> None:
        options = dict(itertools.pairwise(words))
        names = itertools.takewhile(lambda word: word not in {"of", "pod", "named", "unprepared"}, words)
        for name in names:
            prepared = self._prepared[name] = asyncio.Event()
            if words[-1] != "unprepared":
                prepared.set()
            self._named[name] = self.at.join(
                options.get("named", ""),
                installation=options.get("of", NAME),
                prepare=functools.partial(self._prepare, prepared),
                pod=options.get("pod", ""),
            )

    @staticmethod
    async def _prepare(prepared: asyncio.Event) -> None:
        await prepared.wait()

    def ready(self, name: str) -> None:
        self._named[name].loop.call_soon(self._prepared[name].set)

    def unready(self, name: str) -> None:
        self._prepared[name].clear()

    def kill(self, *names: str) -> None:
        for name in names:
            self._named[name].kill()

    def leave(self, *names: str) -> None:
        for name in names:
            self._named[name].leave()

    def heal(self, *names: str) -> None:
        for name in names:
            self._named[name].heal()

    def freeze(self, name: str, seconds: str = "inf") -> None:
        self._named[name].freeze(float(seconds))

    def mode(self, mode: str, *names: str) -> None:
        for name in names:
            self._named[name].mode = mode

    def stall(self, name: str) -> None:
        self._named[name].stalled = True

    def resume(self, name: str) -> None:
        self._named[name].stalled = False

    def edit(self, lease: str, *fields: str) -> None:
        self.at.edit(self.lease(lease), **dict(field.split("=", 1) for field in fields))

    def label(self, lease: str, *labels: str) -> None:
        self.at.label(self.lease(lease), dict(label.split("=") for label in labels))

    def delete(self, lease: str) -> None:
        self.at.delete(self.lease(lease))

    def put(self, lease: str, holder: str) -> None:
        spec, metadata = {"holderIdentity": holder, "leaseDurationSeconds": 15}, {"labels": {LABEL: NAME}}
        name = self.lease(lease)
        self.at.put(name, {"metadata": metadata | {"name": name}, "spec": spec})

    def refuse_writes(self, *leases: str) -> None:
        def refuse(name: str) -> None:
            if name in map(self.lease, leases):
                raise KubernetesError(503, "ServiceUnavailable", "refused")

        self.at.before_write = refuse

    def faults(self, *faults: str) -> None:
        self.at.faults = {verb: int(status) for verb, status in (fault.split("=") for fault in faults)}

    def lock_faults(self, *faults: str) -> None:
        self.at.lock_faults = {verb: int(status) for verb, status in (fault.split("=") for fault in faults)}

    def overruled(self) -> None:
        self.at.check = lambda: None  # type: ignore[method-assign]  # until all have looked

    # -- time ----------------------------------------------------------------------------------------------

    def run(self, seconds: str) -> None:
        self.at.run(float(seconds))

    def gap(self, seconds: str, _below: str, most: str) -> None:
        assert self.at.longest_gap(float(seconds)) < float(most)

    def until(self, *words: str) -> None:
        """Let time pass; the bounds are those of the time that it takes."""
        *condition, least, _to, most = words
        took = self.at.run_until(self._condition(*condition), float(most) + 1)
        assert float(least) <= took < float(most), f"{' '.join(words)}: {took}"

    def _condition(self, verb: str, *words: str) -> Callable[[], bool]:
        at, named = self.at, self._named
        conditions: dict[str, Callable[..., bool]] = {
            "fair": at.is_fair,
            "unfair": lambda: not at.is_fair(),
            "all-owned": lambda: sum(at.shares()) == slices.COUNT,
            "owns": lambda name: len(named[name].owned) == slices.COUNT,
            "scales": lambda name: (
                sum(len(each.owned) for each in at.processes if each.installation == name) == slices.COUNT
            ),
            "scaling": lambda name: self.scaling() == name,
            "free": lambda number: int(number) in at.free,
            "taken": lambda number: int(number) not in at.free,
            "lost": lambda name, number: int(number) not in named[name].owned,
            "calm": lambda name: self.problems(name) == ["none"],
            "unheld": lambda lease: self.holder(lease) == "-",
            "unfound": lambda name, number: self.found(name, number) == "-",
            "labelled": lambda lease: self.labels(lease) != "{}",
            "ended": lambda name: named[name].task.done(),
        }
        return functools.partial(conditions[verb], *words)

    # -- what is known -------------------------------------------------------------------------------------

    def shares(self) -> str:
        alive = [(name, process) for name, process in self._named.items() if process in self.at.alive]
        return ", ".join(f"{name} {len(process.owned)}" for name, process in alive)

    def mark(self, name: str = "") -> None:
        """Have `moved` and `counts` say what comes from now on."""
        self._begun = self.at.begun
        if name:
            self._counted = len(self.at.log), self._named[name].calls

    def moved(self) -> str:
        """Return how many slices have begun to be worked on since the mark."""
        return str(self.at.begun - self._begun)

    def scaling(self) -> str:
        working = itertools.chain.from_iterable(self.at.writers.values())
        return " and ".join(sorted({process.installation for process, _ in working if process.is_running}))

    def counts(self, name: str) -> str:
        """Return how much was written, and asked by a scaler, since the mark."""
        written, asked = self._counted
        return f"{len(self.at.log) - written} writes, {self._named[name].calls - asked} requests of {name}"

    def found(self, name: str, number: str) -> str:
        return self.name(self._named[name].keeper.find_owner(int(number)))

    def wants(self, name: str) -> str:
        process = self._named[name]
        wanted = process.wanted[-1]
        return f"{len(wanted)}{', as owned' * (wanted == set(process.owned))}"

    def transitions(self, lease: str) -> str:
        return str(self.at.leases[self.lease(lease)]["spec"]["leaseTransitions"])

    def owner(self, number: str) -> str:
        ((process, _),) = self.at.writers[int(number)]
        return self.name(process.identity)

    def holder(self, lease: str) -> str:
        return self.name(self.at.holder(self.lease(lease)))

    def labels(self, lease: str) -> str:
        return json.dumps(self.at.leases[self.lease(lease)]["metadata"]["labels"])

    def leases(self) -> str:
        return " ".join(name for name, process in self._named.items() if process.lease in self.at.leases)

    def members(self, name: str) -> str:
        seen = {member.lease for member in self._named[name].view.members()}
        return " ".join(name for name, process in self._named.items() if process.lease in seen)

    def wanted(self, name: str) -> str:
        """Return how many slices a scaler has wanted at any time."""
        return " ".join(map(str, sorted({len(numbers) for numbers in self._named[name].wanted})))

    def problems(self, *names: str) -> list[str]:
        leases = {process.lease: name for name, process in self._named.items()}
        return sorted(
            " ".join([name, fault, leases.get(about, about)]).strip()
            for name in names
            for fault, about in self._named[name].problems.active()
        ) or ["none"]

    def blamed(self) -> list[str]:
        records = [record for record in self._log.records if record.message == CHANGED]
        return [str(record.facts) for record in records] or ["none"]  # type: ignore[attr-defined]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[SliceScript]:
    script = SliceScript(monkeypatch, caplog)
    yield script
    script.at.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("scripts", "title"),
    [(scripts, title) for scripts in SCRIPTS.values() for title in scripts.titles],
    ids=[title for scripts in SCRIPTS.values() for title in scripts.titles],
)
def test_script(scripts: Scripts, title: str, script: SliceScript, pytestconfig: pytest.Config) -> None:
    said = list[str]()
    for line in scripts.lines(title):
        verb, *words = line.split(" ")
        answer = getattr(script, verb.replace("-", "_"))(*words)
        said += [f"> {line}", *([answer] if isinstance(answer, str) else answer or [])]
    scripts.check(title, said, pytestconfig)
