from collections.abc import Mapping

import pytest

from adapter.autoscaler.decide.observation import (
    PodsReading,
    Settings,
    Unavailable,
    group_pods,
    request_of,
)
from adapter.model.pods import Container, PodFacts, ResourceRequirements
from adapter.model.quantity import Quantity, read
from tests.support.scaling import NOW, pod


def test_settings_move_the_periods() -> None:
    eager = Settings(cpu_initialization_period=0, initial_readiness_delay=0)
    young = pod("a", started=10, ready="False", ready_for=5)

    assert group_pods([young], PodsReading({"a": 5}), eager, NOW, cpu=True).ready == 1


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
