"""Writing statuses: urgent and pending ones, and that only the latest is written.

`scripts/statuses-in-time` has stories in fake time, where each write takes a tenth of a second, and
`scripts/statuses` stories on a cluster. After `> ` something happens: `submit NAME FIELD=VALUE ...` with
what the autoscaler has as `seen`, of another `uid` or `version`, and what other verbs say.
Below it is what is known then. `scripts/test tests/kubernetes/write --update` writes it.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.write import status as statuswriter
from adapter.kubernetes.write.status import StatusOutlet, StatusUpdate, is_urgent
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus, MetricStatus
from adapter.model.timestamps import Instant
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.clock import LoopClock
from tests.support.scripts import Scripts
from tests.support.waiting import running, until
from tests.support.writing import Desk, desk_on, open_outbox

SLICE = slices.slice_of("default")
FOLDER = Path(__file__).parent / "scripts"
PATH = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{}/status"
READY = Condition("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size")
CALM = HorizontalPodAutoscalerStatus(current_replicas=2, desired_replicas=2, conditions=(READY,))


def change(**fields: Any) -> HorizontalPodAutoscalerStatus:
    return msgspec.structs.replace(CALM, **fields)


def condition(**fields: Any) -> HorizontalPodAutoscalerStatus:
    return change(conditions=(msgspec.structs.replace(READY, **fields),))


@pytest.mark.parametrize(
    ("wanted", "urgent"),
    [
        pytest.param(CALM, False, id="the same"),
        pytest.param(change(current_replicas=3), True, id="current replicas"),
        pytest.param(change(desired_replicas=3), True, id="desired replicas"),
        pytest.param(change(last_scale_time=Instant(7)), True, id="written and written back"),
        pytest.param(condition(status="False"), True, id="a condition's status"),
        pytest.param(condition(reason="Other"), True, id="a condition's reason"),
        pytest.param(condition(message="other words"), False, id="a condition's message"),
        pytest.param(change(conditions=(READY, READY)), True, id="one condition more"),
        pytest.param(change(conditions=None), True, id="no conditions"),
        pytest.param(change(current_metrics=(MetricStatus("Pods"),)), False, id="a metric's value"),
        pytest.param(change(observed_generation=7), False, id="the generation"),
    ],
)
def test_what_may_not_wait(wanted: HorizontalPodAutoscalerStatus, *, urgent: bool) -> None:
    assert is_urgent(CALM, wanted) is urgent


# --- when a status is written -------------------------------------------------------------------------------


def fields_of(words: Sequence[str]) -> tuple[dict[str, str], HorizontalPodAutoscalerStatus]:
    """Return the options and the status that words say."""
    options = {key: value for key, value in itertools.pairwise(words) if key in {"seen", "uid", "version"}}
    names = {
        "desired": "desired_replicas",
        "current": "current_replicas",
        "generation": "observed_generation",
    }
    said = itertools.takewhile(lambda word: word not in options, words)
    return options, change(**{names[key]: int(value) for key, value in (word.split("=") for word in said)})


class Queue:
    """A status writer in fake time, whose writes take a tenth of a second each; some fail at first."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._failing = 0
        self.running = contextlib.AsyncExitStack()
        clock, monitoring = LoopClock(), Monitoring()
        self._problems, itself = ProblemLog(monitoring, clock), cast("Any", self)
        self.outbox = open_outbox(itself, self._problems, clock, monitoring, itself)
        self.writer = StatusOutlet(self.outbox, self._problems)

    async def acquire(self, _: WriteKind) -> None:
        await asyncio.sleep(0.1)

    async def send(self, _kind: WriteKind, _method: str, path: str, _content: bytes, **_: object) -> None:
        await asyncio.sleep(0.05)
        if self._failing:
            self._failing -= 1
            raise KubernetesError(500, "InternalError", "made up")
        self.paths.append(path)

    def submit(self, name: str, *words: str) -> None:
        options, status = fields_of(words)
        seen = fields_of([options["seen"]])[1] if "seen" in options else CALM
        update = StatusUpdate("default", name, "uid", name, "1", status, dict)
        self.writer.put(update, seen)

    def failures(self, count: str) -> None:
        self._failing = int(count)

    def forget(self, name: str) -> None:
        self.writer.forget("default", name)

    async def run(self) -> None:
        await self.running.enter_async_context(running(self.outbox.run()))

    @staticmethod
    async def sleep(seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def drain(self) -> None:
        await self.outbox.drain(SLICE)

    def problems(self) -> str:
        return ", ".join(" ".join(key) for key in self._problems.active()) or "none"

    def written(self) -> str:
        return " ".join(sorted(self.paths)) or "nothing"

    def first(self) -> str:
        return self.paths[0]


IN_TIME = Scripts(FOLDER / "statuses-in-time")


@pytest.mark.looptime
@pytest.mark.parametrize("title", IN_TIME.titles)
async def test_script_in_time(title: str, pytestconfig: pytest.Config) -> None:
    queue = Queue()
    async with queue.running:
        await IN_TIME.play(title, queue, pytestconfig)


# --- at the cluster -----------------------------------------------------------------------------------------


class OfficeScript:
    """A status writer at work on a cluster: what a line of a script does, and what is said then."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._cluster = desk, desk.cluster
        self._refused: list[KubernetesError] = []
        self._is_broken = False
        self._writer = StatusOutlet(desk.outbox, desk.faults, self._note)

    def _note(self, _: StatusUpdate, error: KubernetesError) -> None:
        if self._is_broken:
            raise ZeroDivisionError
        self._refused.append(error)

    def make(self, name: str) -> None:
        head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}}
        self._cluster.create({**head, "spec": {"maxReplicas": 5}})

    def submit(self, name: str, *words: str) -> None:
        options, status = fields_of(words)
        metadata = self._cluster.get("hpa", name)["metadata"]
        uid, version = (
            options.get("uid", metadata["uid"]),
            options.get("version", metadata["resourceVersion"]),
        )
        document = {"currentReplicas": status.current_replicas, "desiredReplicas": status.desired_replicas}
        update = StatusUpdate("default", name, uid, PATH.format(name), version, status, lambda: document)
        self._writer.put(update, None if options.get("seen") == "none" else CALM)

    def delete(self, name: str) -> None:
        self._cluster.delete("hpa", name)

    def patch(self, name: str, *words: str) -> None:
        self._cluster.patch("hpa", name, json.loads(" ".join(words)))

    def fail(self, code: str, times: str) -> None:
        self._cluster.fail(int(code), "patch", "horizontalpodautoscalers/status", int(times))

    def forbid(self, verb: str) -> None:
        self._cluster.forbid(verb, "horizontalpodautoscalers/status")

    def gate(self, passes: str) -> None:
        self._desk.gate.passes = None if passes == "open" else int(passes)

    def spoil(self) -> None:
        self._is_broken = True

    @staticmethod
    async def pause(seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def until(self, verb: str, *words: str) -> None:
        """Wait until a verb says these words, or anything but nothing."""
        nothing = {"null", "none", "0"}

        def is_said() -> bool:
            said = getattr(self, verb)(*words[:1])
            return said == " ".join(words[1:]) if words[1:] else said not in nothing

        await until(is_said)

    def status(self, name: str) -> str:
        return json.dumps(self._cluster.get("hpa", name).get("status"))

    def writes(self, outcome: str) -> str:
        return f"{self._desk.writes('status', outcome):g}"

    def failed(self) -> str:
        return " ".join(str(error.status) for error in self._refused) or "none"

    def problems(self) -> str:
        return ", ".join(" ".join(key) for key in self._desk.faults.active()) or "none"

    def calm(self) -> str:
        return "none" if self._desk.faults.active() else "calm"

    def errors(self) -> str:
        return f"{self._desk.sample('fastpath_scaler_unexpected_errors_total'):g}"


@pytest.fixture
async def office(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OfficeScript]:
    """Give an office whose periods are a hundredth of the real ones."""
    monkeypatch.setattr(statuswriter, "PERIOD", 0.15)
    monkeypatch.setattr(statuswriter, "RETRY", 0.01)
    monkeypatch.setattr(statuswriter, "RETRY_LIMIT", 0.15)
    async with Cluster() as cluster, desk_on(cluster) as desk:
        office = OfficeScript(desk)
        office.make("web")
        async with running(desk.outbox.run()):
            yield office


AT_THE_CLUSTER = Scripts(FOLDER / "statuses")


@pytest.mark.parametrize("title", AT_THE_CLUSTER.titles)
async def test_script(title: str, office: OfficeScript, pytestconfig: pytest.Config) -> None:
    await AT_THE_CLUSTER.play(title, office, pytestconfig)
