from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from adapter.autoscaler.decide.observation import PodsReading, Settings, Unavailable, group_pods, read_request
from adapter.model.objects.pods import Container, PodFacts, ResourceRequirements
from adapter.model.quantity import Quantity, read
from tests.support.answers import answers
from tests.support.scaling import NOW, pod


def test_settings_move_the_periods() -> None:
    eager = Settings(cpu_initialization_period=0, initial_readiness_delay=0)
    young = pod("a", started=10, ready="False", ready_for=5)

    assert group_pods([young], PodsReading({"a": 5}), eager, NOW, cpu=True).ready == 1


def _asks(texts: Mapping[str, str] | None) -> dict[str, Quantity] | None:
    return None if texts is None else {name: read(text) for name, text in texts.items()}


def _box(name: str, requests: Mapping[str, str] | None, restart: str | None = None) -> Container:
    return Container(name, ResourceRequirements(_asks(requests)), restart)


def _pod(
    containers: Sequence[Any],
    start: Sequence[Any] = (),
    whole: Mapping[str, str] | None = None,
    overhead: Mapping[str, str] | None = None,
) -> PodFacts:
    return PodFacts(
        "web-0",
        containers=tuple(_box(*each) for each in containers),
        init_containers=tuple(_box(*each) for each in start),
        pod_requests=_asks(whole),
        overhead=_asks(overhead),
    )


@pytest.mark.parametrize(("pod", "container", "milli"), answers("decide/pod_groups", "requests"))
def test_requests(pod: dict[str, Any], container: str, milli: int) -> None:
    assert read_request(_pod(**pod), "cpu", container) == milli


def test_requests_of_other_resources() -> None:
    pages = _pod([["app", {}]], whole={"hugepages-2Mi": "4Mi"})
    assert read_request(pages, "hugepages-2Mi") == 4 * 1024**2 * 1000
    gpus = _pod([["app", {"nvidia.com/gpu": "2"}]], whole={"cpu": "1", "nvidia.com/gpu": "9"})
    assert read_request(gpus, "nvidia.com/gpu") == 2000, "the pod's own word is for what it may ask for alone"


@pytest.mark.parametrize(("pod", "container", "sentence"), answers("decide/pod_groups", "missing"))
def test_missing_requests(pod: dict[str, Any], container: str, sentence: str) -> None:
    assert read_request(_pod(**pod), "cpu", container) == Unavailable("MissingRequest", sentence)
