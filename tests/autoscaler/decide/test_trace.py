import pytest

from adapter.autoscaler.decide import trace
from adapter.autoscaler.decide.trace import Step
from tests.support.answers import answers


@pytest.mark.parametrize(("value", "text"), answers("trace", "numbers"))
def test_numbers(value: float, text: str) -> None:
    assert trace.number(value) == text


@pytest.mark.parametrize(("milli", "text"), answers("trace", "thousandths"))
def test_thousandths(milli: int, text: str) -> None:
    assert trace.milli(milli) == text


@pytest.mark.parametrize(("milli", "text"), answers("trace", "bytes"))
def test_bytes(milli: int, text: str) -> None:
    assert trace.binary(milli) == text


def test_an_average_of_memory() -> None:
    facts = {"measured": 50_000_000_000, "target": 2**26 * 1000, "ratio": 0.745, "bytes": True}

    assert Step("average", facts).text() == "average 47.7Mi, target 64Mi: ratio 0.745"


@pytest.mark.parametrize(("product", "replicas", "words"), answers("trace", "products"))
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
