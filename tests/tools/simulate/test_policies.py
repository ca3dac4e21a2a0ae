"""The texts of policies."""

from adapter.model.quantity import read
from fastpath_forecast.simulate.policies import FAST_PACE, NATIVE_PACE, Pace
from fastpath_tools.simulate.peers import Knative, Persistence
from fastpath_tools.simulate.policies import Keda, read_policy


def test_defaults() -> None:
    assert (read_policy("native").native, read_policy("native").fast) == (NATIVE_PACE, None)
    assert (read_policy("fast").native, read_policy("fast").fast) == (None, FAST_PACE)
    assert read_policy("fast").usage == Pace(NATIVE_PACE.scrape, NATIVE_PACE.window, FAST_PACE.decide)
    assert (read_policy("boost").native, read_policy("boost").fast) == (NATIVE_PACE, FAST_PACE)
    assert read_policy("boost:scrape=30s").usage == Pace(30, NATIVE_PACE.window, NATIVE_PACE.decide)
    assert read_policy("fixed:replicas=7").replicas == 7
    keda = read_policy("keda")
    assert (keda.native, keda.fast, keda.poller, keda.peer) == (NATIVE_PACE, None, Keda(30), None)
    assert read_policy("persistence").peer == Persistence(1, 60, 60)
    assert read_policy("kpa").peer == Knative(60, 6, 2.0, 1000, 2, 0, 2)


def test_keys() -> None:
    policy = read_policy("native:scrape=30s,window=2m,sync=30,target=500m,minReplicas=2,maxReplicas=9")
    assert policy.native == Pace(30, 120, 30)
    assert (policy.target, policy.min_replicas, policy.max_replicas) == (read("500m"), 2, 9)
    assert read_policy("boost:fastScrape=2,fastWindow=0,tick=3").fast == Pace(2, 0, 3)
    assert read_policy("fast:slowScrape=60s,slowWindow=30s,tick=2").usage == Pace(60, 30, 2)
    assert read_policy("keda:poll=5s,sync=30s").poller == Keda(5)
    assert read_policy("persistence:x=1.05,window=2m,sync=30").peer == Persistence(1.05, 120, 30)
    slow = "kpa:window=2m,panicThreshold=150,maxScaleUp=10,maxScaleDown=1.5,scaleDownDelay=90s,tick=5"
    assert read_policy(slow).peer == Knative(120, 12, 1.5, 10, 1.5, 90, 5)
    assert read_policy("kpa:panicWindow=20s,target=7").peer == Knative(panic_window=20)
    assert read_policy("fast:scrape=2,window=8,tick=2,behavior=slow.yaml").behavior == "slow.yaml"
