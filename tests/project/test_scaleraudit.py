"""The audit of several scalers, tested with events as an API server logs them."""

import json
from typing import Any

import pytest

from adapter.model.autoscaling import slices
from tests.e2e.scaleraudit import GROUP, NAME, ScalerAudit, Step
from tests.world.scalewrites import Place

WEB = Place("shop", "web")
SLICE = slices.name_of(NAME, slices.slice_of("shop"))
WINDOW = 10.0


class AuditedSlice:
    """An API server whose versions are its seconds. The pod `a` owns the slice, and then `b`."""

    def __init__(self, tmp_path: Any) -> None:
        self.audit = ScalerAudit(tmp_path / "audit.log", "fastpath")
        self.lease(1, f"{NAME}-member-1", "a_1")
        self.lease(2, f"{NAME}-member-2", "b_2")
        self.lease(3, SLICE, "a_1")

    def lease(self, version: int, name: str, holder: str) -> None:
        reference = {"resource": "leases", "namespace": "fastpath", "name": name}
        self._saw(version, reference, {"spec": {"holderIdentity": holder}})

    def put(self, version: int, replicas: int, by: str = "a", of: int = 3, code: int = 200) -> None:
        reference = {"resource": "deployments", "subresource": "scale", "namespace": "shop", "name": "web"}
        event = {
            "user": {"groups": [GROUP + by, "system:authenticated"]},
            "requestObject": {
                "metadata": {"resourceVersion": str(of)} if of else {},
                "spec": {"replicas": replicas},
            },
            "responseStatus": {"code": code},
        }
        self._saw(version, reference, {"spec": {"replicas": replicas}}, **event)

    def _saw(self, version: int, reference: dict[str, str], stored: dict[str, Any], **event: Any) -> None:
        self.audit.saw(
            {
                "stage": "ResponseComplete",
                "stageTimestamp": f"1970-01-01T00:00:{version:02}.000000Z",
                "objectRef": reference,
                "responseStatus": {"code": 200},
                "responseObject": {"metadata": {"name": reference["name"], "resourceVersion": version}}
                | stored,
            }
            | event
        )

    def target(self, version: int, replicas: int) -> None:
        metadata = {"namespace": "shop", "name": "web", "resourceVersion": str(version)}
        self.audit.saw_target({"metadata": metadata, "spec": {"replicas": replicas}})


@pytest.fixture
def world(tmp_path: Any) -> AuditedSlice:
    return AuditedSlice(tmp_path)


def test_when_a_slice_was_released_before_its_next_owner_decided(world: AuditedSlice) -> None:
    world.lease(6, SLICE, "")
    world.lease(8, SLICE, "b_2")
    released = world.audit.released("shop", "b", 9.0)
    assert released is not None
    assert (released.time, released.holder) == (6.0, "a_1")
    assert world.audit.released("shop", "a", 5.0) is None, "it is the first owner"
    world.lease(10, SLICE, "")
    world.lease(11, SLICE, "b_2")
    assert world.audit.released("shop", "b", 12.0) is None, "it was its own"


def test_a_slice_is_released_with_the_membership_of_its_owner(world: AuditedSlice) -> None:
    world.lease(5, f"{NAME}-member-1", "")
    world.lease(8, SLICE, "b_2")
    world.lease(12, f"{NAME}-member-1", "")
    released = world.audit.released("shop", "b", 9.0)
    assert released is not None
    assert released.time == 5.0


def faults(world: AuditedSlice, *steps: tuple[float, int]) -> list[str]:
    """Return what is wrong with the writes, without their targets, for these steps of the load."""
    found = [*world.audit.doubles(WEB, 1)]
    if steps:
        found += world.audit.wrong(WEB, [Step(*step) for step in steps], 1, WINDOW)
    return [fault.removeprefix(f"{WEB}: ") for fault in found]


def test_a_hand_over_is_no_fault(world: AuditedSlice) -> None:
    world.put(10, 2)
    world.lease(12, SLICE, "")
    world.lease(14, SLICE, "b_2")
    world.put(20, 4, by="b", of=10)
    assert faults(world, (0, 2), (18, 4)) == []
    assert world.audit.shares() == {"b": 1}
    assert [world.audit.owner("shop", time=each) for each in (2, 3, 13, 14)] == ["", "a_1", "", "b_2"]


@pytest.mark.parametrize(
    ("lease", "puts", "fault"),
    [
        ((SLICE, "b_2"), [(20, 2, 3)], "by another than the owner, b"),
        ((f"{NAME}-member-1", ""), [(20, 2, 3)], "by another than the owner, none"),
        (None, [(15, 2, 3), (20, 4, 0)], "was not decided from the version that it replaces"),
        (None, [(15, 2, 3), (20, 4, 10)], "was not decided from the version that it replaces"),
        (None, [(15, 2, 3), (20, 2, 15)], "says what"),
    ],
    ids=["a former owner", "a membership that ended", "of no version", "of an old version", "the same count"],
)
def test_a_write_that_is_wrong(
    world: AuditedSlice, lease: tuple[str, str] | None, puts: list[tuple[int, int, int]], fault: str
) -> None:
    if lease:
        world.lease(12, *lease)
    for version, replicas, of in puts:
        world.put(version, replicas, of=of)
    (found,) = faults(world)
    assert fault in found


def test_a_refused_write_is_none(world: AuditedSlice) -> None:
    world.put(15, 2, code=409)
    assert (world.audit.of(WEB), world.audit.conflicts) == ((), 1)


@pytest.mark.parametrize(
    ("at", "replicas", "fault"),
    [
        (31, 2, ""),
        (29, 2, ""),  # the last look at the load was a moment before it fell
        (26, 2, "while 8 was needed within 10 s"),
        (26, 4, "while 8 was needed within 10 s"),
        (40, 1, "while 2 was needed within 10 s"),
        (40, 4, "when [2] were needed"),
    ],
)
def test_a_shrink(world: AuditedSlice, at: int, replicas: int, fault: str) -> None:
    """The load falls at 20, and its window ends at 30."""
    world.put(10, 8)
    world.put(at, replicas, of=10)
    found = faults(world, (0, 8), (20, 2))
    assert len(found) == bool(fault)
    assert fault in "".join(found)


def test_reactions(world: AuditedSlice) -> None:
    steps = [Step(9, 2), Step(12, 4), Step(14, 6), Step(16, 1), Step(30, 3), Step(40, 9)]
    world.put(10, 2)
    world.lease(13, SLICE, "b_2")
    world.put(15, 6, by="b", of=10)
    found = [
        (each.step.replicas, each.seconds, each.is_written, each.owner)
        for each in world.audit.reactions(WEB, steps, 1, end=50)
    ]
    assert found == [(2, 1, True, "a"), (4, 3, True, "a"), (6, 1, True, "b"), (9, 10, False, "b")]


@pytest.mark.parametrize(
    ("journal", "since", "is_fault"),
    [
        ([(1, 2), (4, 6)], 40, False),
        ([(1, 2)], 25, False),  # the second was in flight
        ([(1, 2)], 40, True),
        ([(1, 2), (2, 6)], 40, True),
        ([(1, 2), (4, 6), (6, 8)], 40, True),
    ],
)
def test_a_journal(
    world: AuditedSlice, journal: list[tuple[int, int]], since: float, *, is_fault: bool
) -> None:
    world.put(10, 2)
    world.put(20, 4, by="b", of=10)
    world.put(30, 6, of=20)
    assert bool([*world.audit.unjournalled(WEB, "a", journal, since, 1)]) == is_fault


def test_a_write_when_its_pod_was_frozen_may_be_missing_in_a_journal(world: AuditedSlice) -> None:
    world.put(10, 2)
    assert [*world.audit.unjournalled(WEB, "a", [], 40, 1, frozen=9)] == []
    assert [*world.audit.unjournalled(WEB, "a", [], 40, 1, frozen=5)] != []


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_write_without_response(world: AuditedSlice, tmp_path: Any, *, is_stored: bool) -> None:
    (tmp_path / "audit.log").touch()
    world.target(3, 1)
    world.put(10, 2, code=504)
    world.audit.read()
    assert world.audit.count(WEB, 1) == 1
    world.target(11, 2 if is_stored else 1)
    world.target(12, 2)
    world.audit.read()
    assert [each.version for each in world.audit.of(WEB)] == [11] * is_stored


def test_a_log_is_read_as_it_grows(world: AuditedSlice, tmp_path: Any) -> None:
    log = tmp_path / "audit.log"
    event = {
        "stage": "ResponseComplete",
        "stageTimestamp": "1970-01-01T00:00:05Z",
        "responseStatus": {"code": 200},
        "objectRef": {"resource": "leases", "namespace": "fastpath", "name": SLICE},
        "responseObject": {"metadata": {"name": SLICE, "resourceVersion": "5"}, "spec": {}},
    }
    lease = f"{json.dumps(event)}\n"
    log.write_text(lease[:100])
    world.audit.read()
    assert world.audit.owner("shop") == "a_1"
    log.write_text(lease)
    world.audit.read()
    assert world.audit.owner("shop") == ""
