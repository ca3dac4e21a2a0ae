"""An API server with sharded lists and watches (KEP-5866) sends a scaler the objects of its slices only.

The sandbox, as API servers up to 1.35, ignores what is asked, and sends all. What is kept is the same.
"""

import random
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.lister import NamespaceNames
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scope import SliceScope
from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import ShiftedClock
from tests.support.objects import plain
from tests.support.waiting import running, until
from tests.world import controlplane
from tests.world.clusters import ClusterUnderTest, Document, RealBackend

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(180)]

SHARES = 4
PODS = 6
NAMES = [f"shard-{number:02}" for number in range(24)]


@pytest.fixture
async def filled(own_cluster: ClusterUnderTest) -> ClusterUnderTest:
    """Return a cluster with some pods in each namespace, where pods of other tests do not end meanwhile."""
    await own_cluster.create(*(plain("Namespace", name) for name in NAMES))
    await own_cluster.create(*(pod for name in NAMES for pod in _pods(name)))
    return own_cluster


def _pods(namespace: str) -> list[Document]:
    spec = {"containers": [{"name": "main", "image": "registry.example.com/web"}]}
    return [plain("Pod", f"web-{each}", namespace, {"app": "web"}, spec=spec) for each in range(PODS)]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how many bytes each kind of request has received."""
    counts: Counter[str] = Counter()
    read: Any = kubernetes._read_piece

    async def counting(response: Any, what: str) -> bytes:
        piece: bytes = await read(response, what)
        counts[what] += len(piece)
        return piece

    monkeypatch.setattr(kubernetes, "_read_piece", counting)
    return counts


async def test_a_scaler_receives_its_share(
    filled: ClusterUnderTest, received: Counter[str], tmp_path: Path
) -> None:
    """Of the first list, of changes, and of a namespace that is made later."""
    assets = controlplane.find_assets()
    is_real = isinstance(filled.backend, RealBackend)
    is_sharded = is_real and assets is not None and controlplane.can_shard(assets / "kube-apiserver")
    shares = [range(first, slices.COUNT, SHARES) for first in range(SHARES)]
    totals: list[int] = []
    kept: list[int] = []
    for number, share in enumerate([*shares, range(slices.COUNT)]):
        received.clear()
        kept.append(await _follow(filled, tmp_path, share, f"late-{number}"))
        totals.append(received["list pods"] + received["watch pods"])
    for own, total in zip(kept[:-1], totals[:-1], strict=True):
        part = own / kept[-1]
        assert total <= 1.2 * totals[-1] * (part if is_sharded else 1)
        assert is_sharded or total > totals[-1] / 2


async def _follow(cluster: ClusterUnderTest, directory: Path, share: Collection[int], late: str) -> int:
    """Follow the pods of some slices while they change; return how many there are in the end."""
    clock, monitoring, scope = ShiftedClock(), Monitoring(), SliceScope()
    problems = ProblemLog(monitoring, clock)
    file = cluster.backend.kubeconfig(directory / "kubeconfig")
    configuration = await credentials.load_configuration([file], clock, problems)
    async with await kubernetes.connect(configuration, random=random.random) as client:
        watching = ReflectorContext(client, clock, monitoring, problems, random.random, scope=scope)
        names, pods = NamespaceNames(watching, scope), PodCache(watching)
        scope.set(share)

        def kept(*namespaces: str) -> Counter[str]:
            return Counter({name: len(found) for name in namespaces for _, found in pods.listing(name)})

        def expected(*namespaces: str) -> Counter[str]:
            return Counter({name: PODS for name in namespaces if slices.slice_of(name) in share})

        async with running(names.run()), running(pods.run()):
            await until(lambda: kept(*NAMES) == expected(*NAMES), 20)
            await cluster.kubectl("annotate", "pods", "-A", "-l", "app=web", f"example.com/{late}=1")
            await cluster.create(plain("Namespace", late))
            await cluster.create(*_pods(late))
            await until(lambda: kept(late) == expected(late), 20)
            return pods.count()
