"""Where pods expose their usage, and what the scaler makes of it; pods choose what they answer."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.model.autoscaling.hpa import Condition, decode_scalar
from fastpath_tools.live import usages
from fastpath_tools.live.api_objects import PodDocument
from fastpath_tools.live.facts import MetricsPort, Unread, UsageVerdict
from tests.support.answers import answers

CPU = usages.COUNTER


def pod(*ports: tuple[str, int], protocol: str = "TCP", **annotations: str) -> PodDocument:
    named = [{"name": name, "containerPort": number, "protocol": protocol} for name, number in ports]
    document = {
        "metadata": {"annotations": {f"prometheus.io/{key}": value for key, value in annotations.items()}},
        "spec": {"containers": [{"name": "web", "ports": named}]},
    }
    return msgspec.convert(document, PodDocument, dec_hook=decode_scalar)


@pytest.mark.parametrize(("ports", "others", "found"), answers("live/usages", "ports"))
def test_ports_that_may_expose_metrics(
    ports: list[Any], others: dict[str, str], found: list[list[str]]
) -> None:
    assert [[port.port, port.path] for port in usages.metrics_ports(pod(*ports, **others))] == found


@pytest.mark.parametrize("path", answers("live/usages", "paths"))
def test_a_path_that_could_lead_elsewhere_is_not_taken(path: str) -> None:
    (port,) = usages.metrics_ports(pod(("http", 80), port="80", path=path))
    assert port.path == "/metrics"


PORTS = (MetricsPort("metrics", 9090, "/metrics", "web"), MetricsPort("http", 8080, "/metrics", "web"))


class Proxy:
    """The API server's proxy to pods: a body, an error or silence for POD:PORT."""

    def __init__(self, answers: Mapping[str, bytes | KubernetesError | None]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def get_start(self, path: str, most: int) -> bytes:
        place = path.removeprefix("/api/v1/namespaces/shop/pods/").removesuffix("/proxy/metrics")
        self.asked.append(place)
        answer = self._answers.get(place, KubernetesError(503, "ServiceUnavailable", "refused"))
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, KubernetesError):
            raise answer
        assert answer is not None
        return answer[:most]


def forbidden(said: str) -> KubernetesError:
    error = KubernetesError(403, "Forbidden", said)
    error.said = said
    return error


EXPOSED = f"# HELP {CPU} ...\n{CPU} 12.5\nup 1\n".encode()


@pytest.mark.parametrize(
    ("answers", "found", "asked"),
    [
        pytest.param({"a:9090": EXPOSED}, PORTS[0], ["a:9090"], id="at the first port"),
        pytest.param(
            {"a:9090": b"up 1\n", "a:8080": EXPOSED}, PORTS[1], ["a:9090", "a:8080"], id="at the second"
        ),
        pytest.param(
            {"a:9090": f"x_{CPU} 1\n# TYPE {CPU} counter\n{CPU}_more 1\n".encode()},
            None,
            ["a:9090", "a:8080"],
            id="a name that only looks like it",
        ),
        pytest.param(
            {"a:9090": None, "a:8080": forbidden("token?"), "b:8080": f'x 1\n{CPU}{{pid="1"}} 1'.encode()},
            PORTS[1],
            ["a:9090", "a:8080", "b:9090", "b:8080"],
            id="a pod that does not answer is not the last",
        ),
        pytest.param({}, None, ["a:9090", "a:8080", "b:9090", "b:8080"], id="few pods are asked"),
        pytest.param(
            {"a:9090": forbidden('pods "a" is forbidden: User "me" cannot get resource "pods/proxy"')},
            Unread("you may not read pods through the API server (get pods/proxy)"),
            ["a:9090"],
            id="no right",
        ),
    ],
)
@pytest.mark.looptime
async def test_the_port_where_pods_expose_the_counter(
    answers: Mapping[str, bytes | KubernetesError | None],
    found: MetricsPort | Unread | None,
    asked: list[str],
) -> None:
    proxy = Proxy(answers)
    assert await usages.find_port(cast("KubernetesClient", proxy), "shop", ["a", "b", "c"], PORTS) == found
    assert proxy.asked == asked


@pytest.mark.parametrize(
    ("status", "given", "verdict"),
    [
        pytest.param("", {}, UsageVerdict(None, "the scaler has no such rule"), id="no condition"),
        pytest.param("True", {"notFaster": "no more than chance"}, UsageVerdict(True), id="it counts"),
        pytest.param("False", {"faster": {}}, UsageVerdict(True), id="another metric does not"),
        pytest.param(
            "False", {"notFaster": "own"}, UsageVerdict(False, "own", "TooMuch"), id="why of the metric"
        ),
        pytest.param("False", None, UsageVerdict(False, "said", "TooMuch"), id="why of the condition"),
    ],
)
def test_verdicts(status: str, given: dict[str, Any] | None, verdict: UsageVerdict) -> None:
    conditions = [Condition("AbleToScale", "True")]
    if status:
        conditions.append(Condition("FastUsage", status, "TooMuch", "said"))
    assert usages.read_verdict(conditions, given) == verdict
