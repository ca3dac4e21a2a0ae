from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import hpa
from adapter.model.quantity import Quantity, read
from adapter.model.timestamps import Instant, Span

_DECODER = msgspec.json.Decoder(hpa.HorizontalPodAutoscaler, dec_hook=hpa.decode_scalar)


def _target(value: object) -> hpa.MetricTarget:
    return msgspec.convert({"type": "Value", "value": value}, hpa.MetricTarget, dec_hook=hpa.decode_scalar)


def test_takes_null_and_unknown_fields() -> None:
    found = _DECODER.decode(
        b'{"spec": {"maxReplicas": 3, "metrics": null, "behavior": null, "news": [1]}, "status": '
        b'{"conditions": null}}'
    )

    assert found.spec.max_replicas == 3
    assert found.spec.metrics is None
    assert found.status is not None
    assert found.status.conditions is None


@pytest.mark.parametrize(
    ("written", "milli"), [("500m", 500), (2, 2000), (0.5, 500), (" 1k ", 10**6), (1e22, 0)]
)
def test_quantities_may_be_numbers(written: object, milli: int) -> None:
    target = _target(written)

    assert target.value is not None
    assert target.value.milli == milli


@pytest.mark.parametrize("written", [True, [], {}, "soon", "1" * 501], ids=str)
def test_other_things_are_no_quantities(written: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.value"):
        _target(written)


@pytest.mark.parametrize(
    ("wanted", "written", "found"), [(Instant, "1970-01-01T00:00:01Z", 10**9), (Span, "1s", 10**9)]
)
def test_times(wanted: type, written: str, found: int) -> None:
    assert hpa.decode_scalar(wanted, written) == found
    with pytest.raises(ValueError, match="expected"):
        hpa.decode_scalar(wanted, 5)


def test_a_metric_that_failed_is_an_empty_entry() -> None:
    assert msgspec.json.encode(hpa.MetricStatus(""), enc_hook=hpa.encode_scalar) == b'{"type":""}'


def test_writes_quantities_canonically() -> None:
    target = hpa.MetricTarget(type="Value", value=read("1.5"))

    assert msgspec.json.encode(target, enc_hook=hpa.encode_scalar) == b'{"type":"Value","value":"1500m"}'


def test_counts_have_32_bits() -> None:
    with pytest.raises(msgspec.ValidationError, match="maxReplicas"):
        _DECODER.decode(b'{"spec": {"maxReplicas": 2147483648}}')
    assert msgspec.convert({"spec": {"replicas": 2147483647}}, hpa.Scale).spec.replicas == 2147483647


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=10,
)


@given(_JSON, st.sampled_from([Quantity, Instant, Span]))
def test_any_scalar_is_read_or_refused(written: Any, wanted: type) -> None:
    try:
        found = hpa.decode_scalar(wanted, written)
    except ValueError:
        return
    assert isinstance(found, wanted)
