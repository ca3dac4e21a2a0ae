"""Replay: what a live scaler decided is decided again from its journal, and a difference is explained."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.controller.reporter import Journal
from adapter.autoscaler.decide import decision, prepared_spec, record
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import ExternalReading, PodsReading, Reading, Unavailable
from adapter.autoscaler.decide.record import DecisionInputs
from adapter.autoscaler.explain import debug
from adapter.errors import InputError
from adapter.model.autoscaling.fastpath_autoscaler import from_hpa
from adapter.model.timestamps import SECOND
from fastpath_tools import evaluate_document
from fastpath_tools.simulate import recorded_replay as replay
from tests.autoscaler.loop_script import LoopScript
from tests.support.controller import Bench, fpa
from tests.support.scaling import external_metric, pods

DATA = Path(__file__).parents[2] / "data" / "hpa-evaluate"
LOAD = {
    "type": "Pods",
    "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


class RecordedScaler:
    """A scaler whose journal keeps what each decision is made from, under a load that a test sets."""

    def __init__(self, **spec: Any) -> None:
        self.bench = Bench()
        self.bench.journal = Journal(20_000, keeps_inputs=True)
        self.bench.start()
        self.bench.put(
            fpa(
                [LOAD, external_metric("queue", type="AverageValue", averageValue="30")],
                maxReplicas=40,
                **spec,
            ),
            3,
        )

    @property
    def replicas(self) -> int:
        return self.bench.server.scales["web"].replicas

    async def step(self, reading: Reading, queue: Reading) -> None:
        for source, read in zip(self.bench.sources.opened, (reading, queue), strict=False):
            source.reading = read
        await self.bench.step(1.0)
        self.bench.server.tell("web")
        self.bench.pods.pods["app=web"] = pods(self.replicas)

    async def share(self, demand: float, queue: int) -> None:
        """Let a second pass in which the pods share a demand."""
        count = self.replicas
        values = {f"web-{number}": int(1000 * demand / count) for number in range(count)}
        await self.step(PodsReading(values, most_then=count), ExternalReading((queue * 1000,)))

    def export(self) -> str:
        return debug.show(self.bench.controller, "default", "web", "").body.decode()


async def test_half_an_hour_of_changing_load_replays_without_a_difference() -> None:
    recording = RecordedScaler(
        behavior={
            "scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]},
            "scaleDown": {
                "stabilizationWindowSeconds": 30,
                "policies": [{"type": "Percent", "value": 20, "periodSeconds": 15}],
            },
        },
        fallback={"type": "Floor", "after": "20s", "replicas": 8},
    )
    counts = set()
    for second in range(1800):
        if 700 <= second < 760:
            gone = Unavailable("NoMetrics", "no metrics returned")
            await recording.step(gone, gone)
        elif second == 900:
            recording.bench.server.fail = "the quota is exhausted"
            await recording.share(390, 0)
            recording.bench.server.fail = ""
        elif second == 1200:
            recording.bench.server.set("web", 2)
        else:
            burst = 180 if second % 400 < 25 else 0
            await recording.share(150 + 130 * math.sin(second / 90) + burst, second % 600)
        counts.add(recording.replicas)

    done = replay.replay(recording.export(), "journal.json")

    assert (done.differences, done.first) == (0, None)
    assert done.decisions > 50
    assert len(counts) > 15, "the load changed the count often"


PENDING = """\
want jobs=100
put web 10 metrics=jobs maxReplicas=1000 up=1000/1 pendingCapacity=[{"metric":"jobs","podThroughput":"1"}]
step
starts 60
step 1
want jobs=200
step 1
make-pods
grow jobs 200 10 60
want jobs=1600
step 1
"""
"""Lines of `tests/autoscaler/scripts/pending`."""


async def test_pending_capacity_is_part_of_a_record() -> None:
    script = LoopScript()
    script.bench.journal = Journal(keeps_inputs=True)
    script.bench.start()
    async with script.running:
        for line in PENDING.splitlines():
            await script.do([line])
    export = debug.show(script.bench.controller, "default", "web", "").body.decode()
    script.bench.close()

    done = replay.replay(export, "journal.json")
    assert (done.differences, done.first) == (0, None)
    document = json.loads(export)
    assert any("pending" in " ".join(entry["trace"]) for entry in document["journal"])
    for entry in document["journal"]:
        del entry["record"]["inputs"]["autoscaler"]["spec"]["pendingCapacity"]
    assert replay.replay(json.dumps(document), "journal.json").differences > 0


async def test_the_first_difference_names_the_step_where_both_part() -> None:
    recording = RecordedScaler()
    await recording.share(10, 0)
    for _ in range(3):
        await recording.share(200, 0)
    document = json.loads(recording.export())
    spoiled = next(entry for entry in document["journal"] if entry["outcome"] == "written")
    metric = spoiled["record"]["inputs"]["autoscaler"]["spec"]["metrics"][0]
    metric["pods"]["target"]["averageValue"] = "500"

    done = replay.replay(json.dumps(document), "journal.json")

    assert done.differences == 1
    assert done.first is not None
    assert done.first.before == spoiled["desiredReplicas"] != done.first.after
    assert "target 10" in done.first.recorded
    assert "target 500" in done.first.now
    assert spoiled["time"] in str(done.first)
    assert done.document()["first"]["after"] == done.first.after


async def test_a_journal_without_records_says_how_to_get_them() -> None:
    recording = RecordedScaler()
    recording.bench.journal = Journal()
    recording.bench.start()
    recording.bench.put(fpa([LOAD]), 3)
    await recording.share(10, 0)
    await recording.share(200, 0)

    assert json.loads(recording.export())["journal"]
    with pytest.raises(InputError, match="run the scaler with --journal-records"):
        replay.replay(recording.export(), "journal.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", r"expected what `fastpath explain NAMESPACE/NAME -o json` prints"),
        ('{"journal": {}}', r"journal: expected what `fastpath explain"),
        ('{"journal": [1]}', r"journal\[0\]: expected what `fastpath explain"),
        ('{"journal": [{"record": {"replicas": 1}}]}', r"journal\[0\]\.record: expected the record of a"),
    ],
)
def test_what_is_no_export_is_one_sentence(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        replay.replay(text, "journal.json")


# -- the decisions of Kubernetes' own controller -------------------------------------------------------------


CASES = [line for file in sorted(DATA.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()]
TIMES = 15
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_a_tenth_of_ten_thousand_decisions_passes_through_a_record_unchanged(part: int) -> None:
    """Each input is decided several times in a row, with history and status of the decision before."""
    for line in CASES[part::PARTS]:
        _fold(json.dumps(json.loads(line)["case"]).encode())


def test_these_are_ten_thousand_decisions() -> None:
    assert len(CASES) * TIMES >= 10_000


def _fold(case: bytes) -> None:
    document = evaluate_document.read_json(case)
    settings = (document.options or evaluate_document.ControllerOptions()).settings()
    spec, seen = prepared_spec.prepare(document.hpa, settings), evaluate_document.observe(document)
    autoscaler = from_hpa(document.hpa)
    history, status, now = document.remembered(), seen.status, int(document.now)
    for _ in range(TIMES):
        seen = msgspec.structs.replace(seen, status=status)
        made = decision.decide(spec, seen, history, now)
        inputs = DecisionInputs(autoscaler, settings, now, seen, Memory(status, history), None)
        written = msgspec.json.decode(record.encode(record.record(inputs, made)))
        again = record.convert(written)
        decided = record.decide_again(again.inputs)
        assert (decided.replicas, decided.rescale, decided.reason, decided.error) == (
            made.replicas,
            made.rescale,
            made.reason,
            made.error,
        ), document.name
        assert (again.replicas, again.rescale) == (made.replicas, made.rescale)
        history, status, now = made.history, made.status, now + 15 * SECOND
