from typing import Any

import pytest

from adapter.autoscaler.decide.observation import PodsReading, Settings
from adapter.autoscaler.decide.readiness import count_ready, group_pods
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
