"""The texts of policies."""

import pytest

from adapter.errors import InputError
from adapter.model.quantity import read
from fastpath_forecast.simulate.policies import FAST_PACE, NATIVE_PACE, Pace
from fastpath_tools.simulate.peers import Knative, Persistence
from fastpath_tools.simulate.policies import Keda, read_policy

_ONE_OF_NATIVE = (
    "expected one of behavior, maxReplicas, minReplicas, scrape, sync, target, window with =value"
)
_NAMES = "native, fast, boost, fixed, persistence, kpa, keda"
_KEYS_OF_KPA = (
    "maxReplicas, maxScaleDown, maxScaleUp, minReplicas, panicThreshold, panicWindow, scaleDownDelay, "
    "target, tick, window"
)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hpa", f"expected {_NAMES}, with :key=value,... behind the name"),
        (
            "kpa:behavior=slow.yaml",
            f"behavior: expected one of {_KEYS_OF_KPA} with =value",
        ),
        (
            "persistence:scrape=1s",
            "scrape: expected one of maxReplicas, minReplicas, sync, target, window, x with =value",
        ),
        (
            "keda:tick=1s",
            f"tick: {_ONE_OF_NATIVE.replace('scrape', 'poll, scrape')}",
        ),
        ("keda:poll=0", "poll=0: expected whole seconds such as 15s, from 1 to 3600"),
        ("persistence:x=0", "x=0: expected a number from 0.01 to 100"),
        ("persistence:x=nan", "x=nan: expected a number from 0.01 to 100"),
        ("persistence:x=1_0", "x=1_0: expected a number from 0.01 to 100"),
        ("persistence:x=much", "x=much: expected a number from 0.01 to 100"),
        ("persistence:window=0", "window=0: expected whole seconds such as 15s, from 1 to 3600"),
        ("kpa:window=5s", "window=5s: expected whole seconds such as 15s, from 6 to 3600"),
        ("kpa:panicWindow=61s", "panicWindow=61s: expected whole seconds such as 15s, from 1 to 60"),
        ("kpa:maxScaleUp=1", "maxScaleUp=1: expected a number from 1.01 to 1,000,000"),
        (
            "native:tick=1",
            f"tick: {_ONE_OF_NATIVE}",
        ),
        (
            "native:",
            f"nothing: {_ONE_OF_NATIVE}",
        ),
        (
            "native:scrape",
            f"scrape: {_ONE_OF_NATIVE}",
        ),
        ("native:scrape=1,scrape=2", "scrape: expected once"),
        ("native:scrape=0", "scrape=0: expected whole seconds such as 15s, from 1 to 3600"),
        ("native:scrape=1.5s", "scrape=1.5s: expected whole seconds such as 15s, from 1 to 3600"),
        ("native:window=soon", "window=soon: expected whole seconds such as 15s, from 0 to 86400"),
        ("fast:slowScrape=0", "slowScrape=0: expected whole seconds such as 15s, from 1 to 3600"),
        ("fast:target=0", "target=0: expected a quantity above 0 such as 10 or 500m"),
        ("fast:target=x", "target=x: expected a quantity above 0 such as 10 or 500m"),
        ("fast:minReplicas=-1", "minReplicas=-1: expected a whole number from 0 to 100000"),
        ("fast:maxReplicas=100001", "maxReplicas=100001: expected a whole number from 0 to 100000"),
        ("fixed:replicas=999999999", "replicas=999999999: expected a whole number from 0 to 100000"),
        ("native:behavior=", "behavior: expected a value behind the ="),
        ("fixed", "replicas=: expected a whole number from 0 to 100000"),
    ],
)
def test_bad_policies(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_policy(text)
    assert str(caught.value) == f"--policy: {text}: {expected}"
