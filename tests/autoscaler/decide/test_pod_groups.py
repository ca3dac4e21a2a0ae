from collections.abc import Mapping
from typing import Any

import pytest

from adapter.autoscaler.decide.observation import (
    PodsReading,
    Settings,
    Unavailable,
    count_ready,
    group_pods,
    request_of,
)
from adapter.model.pods import Container, PodFacts, ResourceRequirements
from adapter.model.quantity import Quantity, read
from adapter.model.timestamps import NEVER, SECOND
from tests.support.scaling import NOW, pod

_YOUNG = {"started": 299.0}
_OLD = {"started": 300.0}


def _group(
    *, cpu: bool = True, sampled: bool = True, ago: float = 0, window: float = 30, **facts: Any
) -> str:
    """Return the group of one pod whose sample was taken so many seconds ago over a window."""
    listed = pod("a", **facts)
    values = {"a": 5} if sampled else {}
    found = group_pods(
        [listed],
        PodsReading(values, {"a": (NOW - int(ago * SECOND), int(window * SECOND))}),
        Settings(),
        NOW,
        cpu=cpu,
    )
    return (
        "ready" if found.ready else next(name for name in found._fields[1:] if getattr(found, name) == ["a"])
    )


@pytest.mark.parametrize(
    ("facts", "group"),
    [
        pytest.param({}, "ready", id="ready for long"),
        pytest.param({"deleting": True}, "ignored", id="terminating"),
        pytest.param({"phase": "Failed"}, "ignored", id="failed"),
        pytest.param({"deleting": True, "phase": "Pending"}, "ignored", id="terminating before it ran"),
        pytest.param({"phase": "Pending"}, "unready", id="pending, though it has a sample"),
        pytest.param({"phase": "Pending", "sampled": False}, "unready", id="pending"),
        pytest.param({"sampled": False}, "missing", id="without a sample"),
        pytest.param({"phase": "Succeeded", "sampled": False}, "missing", id="completed"),
        pytest.param({"phase": "Succeeded"}, "ready", id="completed with a sample"),
        pytest.param({"phase": "Unknown"}, "ready", id="of unknown phase"),
        pytest.param({"ready": None}, "unready", id="without the condition"),
        pytest.param({"started": None}, "unready", id="never started"),
        pytest.param({**_YOUNG, "ready": "False", "ready_for": 200}, "unready", id="young and not ready"),
        pytest.param(
            {**_YOUNG, "ready": "Unknown", "ready_for": 200}, "ready", id="young, readiness unknown"
        ),
        pytest.param({**_YOUNG, "ready_for": 31}, "ready", id="young, a whole window ready"),
        pytest.param({**_YOUNG, "ready_for": 30}, "ready", id="young, exactly a window ready"),
        pytest.param({**_YOUNG, "ready_for": 29.999}, "unready", id="young, not a window ready yet"),
        pytest.param({**_YOUNG, "ready_for": 40, "ago": 20}, "unready", id="young, an older sample"),
        pytest.param({**_OLD, "ready_for": 5}, "ready", id="at the end of the initialization period"),
        pytest.param({**_OLD, "ready": "False", "ready_for": 271}, "unready", id="old and never ready"),
        pytest.param(
            {**_OLD, "ready": "False", "ready_for": 270},
            "ready",
            id="old and unready since exactly the delay",
        ),
        pytest.param({**_OLD, "ready": "False", "ready_for": 100}, "ready", id="old and not ready any more"),
        pytest.param({**_OLD, "ready": "Unknown", "ready_for": 290}, "ready", id="old, readiness unknown"),
    ],
)
def test_groups_for_cpu(facts: dict[str, Any], group: str) -> None:
    assert _group(**facts) == group


@pytest.mark.parametrize(
    ("facts", "group"),
    [
        ({"ready": "False", "started": 1}, "ready"),
        ({"ready": None, "started": None}, "ready"),
        ({"phase": "Pending"}, "unready"),
        ({"sampled": False}, "missing"),
        ({"deleting": True}, "ignored"),
    ],
)
def test_readiness_matters_for_cpu_alone(facts: dict[str, Any], group: str) -> None:
    assert _group(cpu=False, **facts) == group


def test_a_sample_without_a_time_is_of_long_ago() -> None:
    young = pod("a", started=10, ready_for=5)

    found = group_pods([young], PodsReading({"a": 5}), Settings(), NOW, cpu=True)
    never_changed = pod("a", started=10, ready_for=(NOW - NEVER) / SECOND)

    assert found.unready == ["a"]
    assert group_pods([never_changed], PodsReading({"a": 5}), Settings(), NOW, cpu=True).ready == 1


def test_settings_move_the_periods() -> None:
    eager = Settings(cpu_initialization_period=0, initial_readiness_delay=0)
    young = pod("a", started=10, ready="False", ready_for=5)

    assert group_pods([young], PodsReading({"a": 5}), eager, NOW, cpu=True).ready == 1


def test_counts_running_and_ready_pods() -> None:
    listed = [
        pod("a"),
        pod("b", deleting=True),
        pod("c", ready="False"),
        pod("d", ready=None),
        pod("e", phase="Pending"),
        pod("f", ready="Unknown"),
    ]

    assert count_ready(listed) == 2


def _asks(texts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: read(text) for name, text in texts.items()}


def _box(name: str, restart: str | None = None, **requests: str) -> Container:
    return Container(name, ResourceRequirements(_asks(requests)), restart)


def _pod(
    *containers: Container,
    start: tuple[Container, ...] = (),
    whole: Mapping[str, str] | None = None,
    overhead: Mapping[str, str] | None = None,
) -> PodFacts:
    return PodFacts(
        "web-0",
        containers=containers,
        init_containers=start,
        pod_requests=None if whole is None else _asks(whole),
        overhead=None if overhead is None else _asks(overhead),
    )


_SIDECAR = _box("mesh", "Always", cpu="50m", memory="32Mi")
_SETUP = _box("setup", cpu="5")


@pytest.mark.parametrize(
    ("pod", "resource", "container", "request_"),
    [
        pytest.param(
            _pod(_box("app", cpu="100m"), _box("log", cpu="20m")), "cpu", "", 120, id="containers add up"
        ),
        pytest.param(
            _pod(_box("app", cpu="100500u"), _box("log", cpu="100500u")), "cpu", "", 202, id="each rounded"
        ),
        pytest.param(
            _pod(_box("app", cpu="100m"), start=(_SIDECAR, _SETUP)), "cpu", "", 150, id="sidecars too"
        ),
        pytest.param(
            _pod(_box("app", cpu="1"), overhead={"cpu": "1"}), "cpu", "", 1000, id="overhead does not"
        ),
        pytest.param(_pod(_box("app", cpu="100m"), start=(_SIDECAR,)), "cpu", "mesh", 50, id="one sidecar"),
        pytest.param(_pod(_box("app", cpu="1"), _box("log")), "cpu", "app", 1000, id="one container"),
        pytest.param(
            _pod(_box("app", cpu="1"), _box("app", cpu="2")), "cpu", "app", 1000, id="the first of a name"
        ),
        pytest.param(
            _pod(_box("app", cpu="1"), whole={"cpu": "9"}), "cpu", "app", 1000, id="one of a pod that asks"
        ),
        pytest.param(
            _pod(_box("app", cpu="9P"), _box("log", cpu="9P")), "cpu", "", -446744073709551616, id="it wraps"
        ),
        pytest.param(
            _pod(_box("app", cpu="100m"), whole={"cpu": "800m"}), "cpu", "", 800, id="the pod's own"
        ),
        pytest.param(
            _pod(_box("app", cpu="100m"), whole={"memory": "1Gi"}),
            "cpu",
            "",
            100,
            id="which may be of another resource",
        ),
        pytest.param(
            _pod(_box("app", cpu="100m"), _box("log"), whole={"memory": "1Gi"}),
            "cpu",
            "",
            100,
            id="and then none is missing",
        ),
        pytest.param(
            _pod(_box("app", cpu="100500u"), _box("log", cpu="100500u"), whole={"memory": "1Gi"}),
            "cpu",
            "",
            201,
            id="added exactly",
        ),
        pytest.param(
            _pod(_box("app", cpu="100m"), start=(_SIDECAR, _SETUP), whole={"memory": "1Gi"}),
            "cpu",
            "",
            5050,
            id="a step of the start that needs more, beside the sidecars before it",
        ),
        pytest.param(
            _pod(_box("app", cpu="100m"), start=(_SETUP, _SIDECAR), whole={"memory": "1Gi"}),
            "cpu",
            "",
            5000,
            id="not beside those after it",
        ),
        pytest.param(
            _pod(_box("app", cpu="9"), start=(_SIDECAR, _SETUP), whole={"memory": "1Gi"}),
            "cpu",
            "",
            9050,
            id="a start that needs less",
        ),
        pytest.param(
            _pod(_box("app"), start=(_SETUP,), whole={"memory": "1Gi"}),
            "cpu",
            "",
            5000,
            id="only the start asks",
        ),
        pytest.param(
            _pod(_box("app"), start=(_box("setup"), _SIDECAR), whole={"cpu": "1"}, overhead={"cpu": "200m"}),
            "cpu",
            "",
            1200,
            id="with overhead",
        ),
        pytest.param(
            _pod(_box("app"), whole={"memory": "1Gi"}, overhead={"cpu": "200m"}),
            "cpu",
            "",
            200,
            id="overhead alone",
        ),
        pytest.param(
            _pod(_box("app", cpu="1"), whole={"nvidia.com/gpu": "1"}),
            "cpu",
            "",
            1000,
            id="what a pod cannot ask for",
        ),
        pytest.param(
            _pod(_box("app"), whole={"hugepages-2Mi": "4Mi"}),
            "hugepages-2Mi",
            "",
            4 * 1024**2 * 1000,
            id="huge pages",
        ),
        pytest.param(
            _pod(
                Container("app", ResourceRequirements({"nvidia.com/gpu": read("2")})),
                whole={"cpu": "1", "nvidia.com/gpu": "9"},
            ),
            "nvidia.com/gpu",
            "",
            2000,
            id="the pod's own word counts for what it may ask for alone",
        ),
        pytest.param(_pod(_box("app", cpu="1"), whole={}), "cpu", "", 1000, id="nothing asked as a whole"),
        pytest.param(_pod(), "cpu", "", 0, id="no containers"),
    ],
)
def test_requests(pod: PodFacts, resource: str, container: str, request_: int) -> None:
    assert request_of(pod, resource, container) == request_


@pytest.mark.parametrize(
    ("pod", "container", "sentence"),
    [
        (
            _pod(_box("app"), _box("log", cpu="1")),
            "",
            "missing request for cpu in container app of Pod web-0",
        ),
        (_pod(Container("app")), "", "missing request for cpu in container app of Pod web-0"),
        (
            _pod(_box("app", cpu="1"), start=(_box("mesh", "Always"),)),
            "",
            "missing request for cpu in container mesh of Pod web-0",
        ),
        (_pod(_box("app", memory="1")), "app", "missing request for cpu in container app of Pod web-0"),
        (_pod(_box("app", cpu="1")), "nope", "container nope not found in Pod web-0"),
        (_pod(_box("app", cpu="1"), start=(_SETUP,)), "setup", "container setup not found in Pod web-0"),
        (_pod(_box("app"), whole={"memory": "1Gi"}), "", "missing pod-level request for cpu in Pod web-0"),
    ],
)
def test_missing_requests(pod: PodFacts, container: str, sentence: str) -> None:
    assert request_of(pod, "cpu", container) == Unavailable("MissingRequest", sentence)
