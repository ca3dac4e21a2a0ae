import math

import pytest

from adapter.autoscaler.decide import trace
from adapter.autoscaler.decide.trace import Step


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.25, "1.25"),
        (2.0, "2"),
        (2.3333333333333335, "2.3333"),
        (0.00001, "0"),
        (-1.5, "-1.5"),
        (100.0, "100"),
        (1e20, "1e+20"),
        (12, "12"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert trace.number(value) == text


@pytest.mark.parametrize(
    ("milli", "text"),
    [
        (0, "0"),
        (1500, "1.5"),
        (2000, "2"),
        (1, "0.001"),
        (-1500, "-1.5"),
        (-2000, "-2"),
        (100_000, "100"),
        (1_230, "1.23"),
    ],
)
def test_thousandths(milli: int, text: str) -> None:
    assert trace.milli(milli) == text


@pytest.mark.parametrize(
    ("milli", "text"),
    [
        (0, "0"),
        (1500, "1.5"),
        (1023_000, "1023"),
        (1024_000, "1Ki"),
        (-1536_000, "-1.5Ki"),
        (50_000_000_000, "47.7Mi"),
        (2**30 * 1000, "1Gi"),
        (2**40 * 1000, "1Ti"),
        (2**53 * 1000, "8192Ti"),
    ],
)
def test_bytes(milli: int, text: str) -> None:
    assert trace.binary(milli) == text


def test_an_average_of_memory() -> None:
    facts = {"measured": 50_000_000_000, "target": 2**26 * 1000, "ratio": 0.745, "bytes": True}

    assert Step("average", facts).text() == "average 47.7Mi, target 64Mi: ratio 0.745"


@pytest.mark.parametrize(
    ("product", "replicas", "words"),
    [
        (12.0, 12, "5 pods x 2 = 12"),
        (12.5, 13, "5 pods x 2 = 12.5, rounded up to 13"),
        (-12.5, -12, "5 pods x 2 = -12.5, rounded up to -12"),
        (3e9, 2**31 - 1, "5 pods x 2 = 3000000000, outside int32: 2147483647"),
        (math.inf, -(2**31), "5 pods x 2 = inf, outside int32: -2147483648"),
        (math.nan, -(2**31), "5 pods x 2 = nan, outside int32: -2147483648"),
    ],
)
def test_products(product: float, replicas: int, words: str) -> None:
    facts = {"base": 5, "ratio": 2.0, "product": product, "replicas": replicas}

    assert Step("proposal", facts).text() == words


def test_absent_groups_of_pods_are_not_reported() -> None:
    facts = {"metric": "cpu", "ready": 1, "unready": 0, "missing": 2, "ignored": 0}

    assert Step("pods", facts).text() == "cpu: 1 pod ready, 2 missing (no sample)"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            Step("lagging", {"readyThen": 3, "ready": 5}),
            "the value is from when 3 pods were ready: counted with these, not with 5",
        ),
        (
            Step("lagging", {"readyThen": 0, "ready": 5}),
            "pods became ready recently, and the value may be older: no scale-up until it covers all 5",
        ),
        (Step("withheld", {"replicas": 5, "current": 5, "message": "paused"}), "nothing is written: paused"),
        (Step("withheld", {"replicas": 6, "current": 5, "message": "paused"}), "6 is not written: paused"),
    ],
)
def test_what_the_scaler_adds_in_words(step: Step, words: str) -> None:
    assert step.text() == words
