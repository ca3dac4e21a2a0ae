import pytest

from adapter.autoscaler.decide import trace
from adapter.autoscaler.decide.trace import Step
from tests.support.answers import answers


@pytest.mark.parametrize(("value", "text"), answers("decide/trace", "numbers"))
def test_numbers(value: float, text: str) -> None:
    assert trace.number(value) == text


@pytest.mark.parametrize(("milli", "text"), answers("decide/trace", "thousandths"))
def test_thousandths(milli: int, text: str) -> None:
    assert trace.milli(milli) == text


@pytest.mark.parametrize(("milli", "text"), answers("decide/trace", "bytes"))
def test_bytes(milli: int, text: str) -> None:
    assert trace.binary(milli) == text


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
