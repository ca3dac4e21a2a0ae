from collections.abc import Mapping

import pytest

from adapter.autoscaler.decide.observation import PodsReading, Settings, Unavailable, group_pods, read_request
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


_APP, _LOG = _box("app", cpu="100m"), _box("log", cpu="20m")
_MEMORY = {"memory": "1Gi"}
CPU: dict[str, tuple[PodFacts, str, int]] = {
    "containers add up": (_pod(_APP, _LOG), "", 120),
    "each rounded": (_pod(_box("app", cpu="100500u"), _box("log", cpu="100500u")), "", 202),
    "sidecars too": (_pod(_APP, start=(_SIDECAR, _SETUP)), "", 150),
    "overhead does not": (_pod(_box("app", cpu="1"), overhead={"cpu": "1"}), "", 1000),
    "one sidecar": (_pod(_APP, start=(_SIDECAR,)), "mesh", 50),
    "one container": (_pod(_box("app", cpu="1"), _box("log")), "app", 1000),
    "the first of a name": (_pod(_box("app", cpu="1"), _box("app", cpu="2")), "app", 1000),
    "one of a pod that asks": (_pod(_box("app", cpu="1"), whole={"cpu": "9"}), "app", 1000),
    "it wraps": (_pod(_box("app", cpu="9P"), _box("log", cpu="9P")), "", -446744073709551616),
    "the pod's own": (_pod(_APP, whole={"cpu": "800m"}), "", 800),
    "which may be of another resource": (_pod(_APP, whole=_MEMORY), "", 100),
    "and then none is missing": (_pod(_APP, _box("log"), whole=_MEMORY), "", 100),
    "added exactly": (_pod(_box("app", cpu="100500u"), _box("log", cpu="100500u"), whole=_MEMORY), "", 201),
    "a step of the start that needs more, beside the sidecars before it": (
        _pod(_APP, start=(_SIDECAR, _SETUP), whole=_MEMORY),
        "",
        5050,
    ),
    "not beside those after it": (_pod(_APP, start=(_SETUP, _SIDECAR), whole=_MEMORY), "", 5000),
    "a start that needs less": (
        _pod(_box("app", cpu="9"), start=(_SIDECAR, _SETUP), whole=_MEMORY),
        "",
        9050,
    ),
    "only the start asks": (_pod(_box("app"), start=(_SETUP,), whole=_MEMORY), "", 5000),
    "with overhead": (
        _pod(_box("app"), start=(_box("setup"), _SIDECAR), whole={"cpu": "1"}, overhead={"cpu": "200m"}),
        "",
        1200,
    ),
    "overhead alone": (_pod(_box("app"), whole=_MEMORY, overhead={"cpu": "200m"}), "", 200),
    "what a pod cannot ask for": (_pod(_box("app", cpu="1"), whole={"nvidia.com/gpu": "1"}), "", 1000),
    "nothing asked as a whole": (_pod(_box("app", cpu="1"), whole={}), "", 1000),
    "no containers": (_pod(), "", 0),
}


@pytest.mark.parametrize(("pod", "container", "milli"), CPU.values(), ids=CPU)
def test_requests(pod: PodFacts, container: str, milli: int) -> None:
    assert read_request(pod, "cpu", container) == milli


def test_requests_of_other_resources() -> None:
    pages = _pod(_box("app"), whole={"hugepages-2Mi": "4Mi"})
    assert read_request(pages, "hugepages-2Mi") == 4 * 1024**2 * 1000
    gpus = _pod(
        Container("app", ResourceRequirements({"nvidia.com/gpu": read("2")})),
        whole={"cpu": "1", "nvidia.com/gpu": "9"},
    )
    assert read_request(gpus, "nvidia.com/gpu") == 2000, "the pod's own word is for what it may ask for alone"


_OF_APP = "missing request for cpu in container app of Pod web-0"


@pytest.mark.parametrize(
    ("pod", "container", "sentence"),
    [
        (_pod(_box("app"), _box("log", cpu="1")), "", _OF_APP),
        (_pod(Container("app")), "", _OF_APP),
        (_pod(_box("app", memory="1")), "app", _OF_APP),
        (
            _pod(_box("app", cpu="1"), start=(_box("mesh", "Always"),)),
            "",
            "missing request for cpu in container mesh of Pod web-0",
        ),
        (_pod(_box("app", cpu="1")), "nope", "container nope not found in Pod web-0"),
        (_pod(_box("app", cpu="1"), start=(_SETUP,)), "setup", "container setup not found in Pod web-0"),
        (_pod(_box("app"), whole=_MEMORY), "", "missing pod-level request for cpu in Pod web-0"),
    ],
)
def test_missing_requests(pod: PodFacts, container: str, sentence: str) -> None:
    assert read_request(pod, "cpu", container) == Unavailable("MissingRequest", sentence)
