"""When pods of a target count as late, and which of several causes is named. Causes: tests/golden/doctor."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.timestamps import SECOND
from fastpath_tools.live import unready
from fastpath_tools.live.api_objects import PodDocument, WorkloadDocument
from fastpath_tools.live.facts import UnreadyPods

NOW = 1_795_435_200
"""2026-11-23T12:00:00Z, when the pods of the files are as they are there."""
FOLDER = Path(__file__).parents[2] / "golden" / "doctor"
Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    """Return the objects of a file."""
    return list(yaml.load_all((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader))


OLD_PODS, SETS = (
    [one for one in documents("revisions") if one["kind"] == kind] for kind in ("Pod", "ReplicaSet")
)
[IMAGE] = [one for one in documents("containers-that-fail/command-not-found") if one["kind"] == "Pod"]
[CRASHING] = [one for one in documents("containers-that-fail/out-of-memory") if one["kind"] == "Pod"]
[SLOW] = documents("containers-that-are-not-ready/readiness-without-events")
[LOST] = [one for one in documents("pods-that-end/node-notready") if one["kind"] == "Pod"]


def read(
    pods: list[Document],
    *,
    usual: float = 60.0,
    later: float = 0.0,
    sets: list[Document] = SETS,
    replicas: int = 0,
) -> UnreadyPods | None:
    read_pods = msgspec.convert(pods, list[PodDocument], dec_hook=decode_scalar)
    read_sets = msgspec.convert(sets, list[WorkloadDocument], dec_hook=decode_scalar)
    target = unready.PodTarget("Deployment web", replicas or len(pods), read_sets, usual)
    return unready.find(target, read_pods, (), round((NOW + later) * SECOND))


def status(pod: Document, **changes: Any) -> Document:
    """Return a pod with another status; `changes` are of its container's."""
    given = pod["status"]["containerStatuses"][0] | changes
    return pod | {"status": pod["status"] | {"containerStatuses": [given]}}


def ended(ago: int) -> Document:
    at = f"2026-11-23T11:{60 - ago // 60 - 1:02}:{59 - ago % 60:02}Z"
    return {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": at}}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(OLD_PODS[0], id="ready"),
        pytest.param(status(OLD_PODS[0], restartCount=1, lastState=ended(20)), id="one restart"),
        pytest.param(status(OLD_PODS[0], restartCount=9, lastState=ended(700)), id="restarts long ago"),
        pytest.param(CRASHING | {"status": {"phase": "Succeeded"}}, id="it has succeeded"),
        pytest.param(
            IMAGE | {"metadata": IMAGE["metadata"] | {"ownerReferences": []}}, id="it belongs to no set"
        ),
    ],
)
def test_all_is_well(first: Document) -> None:
    assert read([first, *OLD_PODS[1:]]) is None


def test_terminating_pods_matter_only_where_they_are_waited_for() -> None:
    ending = [one for one in documents("pods-that-end/finalizer") if one["kind"] == "Pod"]
    others = [one | {"metadata": one["metadata"] | {"name": f"{at}"}} for at, one in enumerate(OLD_PODS)]
    assert read([*ending, *others]) is not None
    assert read([*ending, *others], replicas=len(others)) is None


def test_pods_that_start_as_usual_are_no_problem() -> None:
    assert read([SLOW, *OLD_PODS], usual=130.0) is None
    assert read([SLOW, *OLD_PODS], usual=120.0) is not None


def test_a_failure_is_late_after_the_usual_time() -> None:
    early, late = (read([IMAGE, *OLD_PODS], usual=130.0, later=later) for later in (0, 10))
    assert early is not None
    assert late is not None
    assert (early.is_late, late.is_late, early.text) == (False, True, late.text)


def test_a_node_that_does_not_report_is_no_matter_of_time() -> None:
    cause = read([LOST, *OLD_PODS[1:]], usual=1000.0)
    assert cause is not None
    assert not cause.is_late
    assert cause.text.endswith("node node-1: it does not report")


def old(pod: Document) -> list[Document]:
    """Return pods of the old version in the state of one of the new."""
    return [one | {"status": pod["status"]} for one in OLD_PODS]


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        pytest.param([IMAGE, *old(CRASHING)], "revision 2", id="the newest version"),
        pytest.param([SLOW, *old(CRASHING)], "revision 1", id="a failure, not what only takes long"),
    ],
)
def test_which_cause_comes_first(pods: list[Document], words: str) -> None:
    cause = read(pods)
    assert cause is not None
    assert words in cause.text


def test_a_stateful_set_names_its_revision() -> None:
    metadata = IMAGE["metadata"] | {"labels": {"app": "web", "controller-revision-hash": "web-7f"}}
    metadata["ownerReferences"] = [{"kind": "StatefulSet", "name": "web", "controller": True}]
    cause = read([IMAGE | {"metadata": metadata}], sets=[{"metadata": {"name": "web", "namespace": "shop"}}])
    assert cause is not None
    assert "(revision web-7f, image registry.example/shop/web:2): container app: RunContainer" in cause.text


@pytest.mark.parametrize("text", ["x" * 5, "99999999999999999999", "-1", "2"])
def test_a_revision_is_a_number(text: str) -> None:
    annotations = {"deployment.kubernetes.io/revision": text}
    document = {"metadata": {"name": "web-1", "annotations": annotations}}
    one = msgspec.convert(document, WorkloadDocument, dec_hook=decode_scalar)
    assert unready.revision(one) == (2 if text == "2" else 0)


def test_a_long_message_is_bounded() -> None:
    text = unready.tidy("a (b (c) d) " * 80 + "\n end. ")
    assert text == " ".join(["a"] * 80) + " end"
    assert len(unready.tidy("x" * 1000)) == 603
