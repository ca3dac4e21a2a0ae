import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import PrometheusError
from adapter.model.metrics import HISTOGRAM, QueryResult, Sample
from adapter.prometheus import response
from adapter.prometheus.response import ResponseDecoder


def decode(body: bytes, chunk: int = 1 << 20, decoder: ResponseDecoder | None = None) -> QueryResult:
    decoder = decoder or ResponseDecoder()
    for start in range(0, len(body), chunk):
        decoder.feed(body[start : start + chunk])
        while decoder.step():
            pass
    return decoder.finish()


def answer(kind: str, result: object, **more: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()


def test_vector() -> None:
    body = answer(
        "vector",
        [
            {"metric": {"__name__": "up", "pod": "a"}, "value": [1700000000.5, "1"]},
            {"metric": {}, "value": [1700000000, "-2.5e-3"]},
        ],
    )
    assert decode(body) == QueryResult(
        "vector",
        [Sample({"__name__": "up", "pod": "a"}, 1.0, 1700000000.5), Sample({}, -0.0025, 1700000000.0)],
    )


def test_scalar_is_one_sample_without_labels() -> None:
    assert decode(answer("scalar", [1700000000, "9"])) == QueryResult(
        "scalar", [Sample({}, 9.0, 1700000000.0)]
    )


@pytest.mark.parametrize("result", [[], None], ids=["empty", "null"])
def test_an_empty_vector_is_an_answer(result: object) -> None:
    assert decode(answer("vector", result)) == QueryResult("vector", [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("0", 0.0),
        ("-0", -0.0),
        ("1.7976931348623157e+308", 1.7976931348623157e308),
        ("5e-324", 5e-324),
        ("0x1.8p3", 12.0),
    ],
)
def test_values_are_texts(text: str, value: float) -> None:
    (sample,) = decode(answer("vector", [{"metric": {}, "value": [1, text]}])).samples
    assert sample.value == value
    assert math.copysign(1, sample.value) == math.copysign(1, value)


def test_nan_stays_nan() -> None:
    (sample,) = decode(answer("vector", [{"metric": {}, "value": [1, "NaN"]}])).samples
    assert math.isnan(sample.value)


def test_a_histogram_is_a_sample_without_a_number() -> None:
    histogram = {"count": "3", "sum": "4", "buckets": [[0, "1", "2", "3"]]}
    body = answer(
        "vector",
        [
            {"metric": {"pod": "a"}, "value": [1, "7"]},
            {"metric": {"pod": "b"}, "histogram": [2.5, histogram]},
        ],
    )
    first, second = decode(body).samples
    assert first == Sample({"pod": "a"}, 7.0, 1.0)
    assert (second.labels, second.time) == ({"pod": "b"}, 2.5)
    assert second.value is HISTOGRAM
    assert math.isnan(second.value)


@pytest.mark.parametrize(
    ("more", "kept", "count"),
    [
        ({"warnings": ["store away", "slow\nline"]}, ("store away", "slow line"), 2),
        ({"warnings": ["a", "b", "c", "d", "e"]}, ("a", "b", "c"), 5),
        ({"warnings": ["x" * 500]}, ("x" * 197 + "...",), 1),
        ({"infos": ["PromQL info: metric might not be a counter"]}, (), 0),
        ({"warnings": [], "infos": None}, (), 0),
        ({"warnings": None}, (), 0),
        ({"isPartial": True}, ("isPartial: some storage nodes did not answer",), 1),
        ({"isPartial": True, "warnings": ["a"]}, ("isPartial: some storage nodes did not answer", "a"), 2),
        ({"isPartial": False, "stats": {"x": 1}}, (), 0),
    ],
    ids=["two", "many", "long", "infos", "empty", "null", "victoriametrics", "both", "whole"],
)
@pytest.mark.parametrize("kind", ["vector", "scalar"])
def test_warnings_are_carried_and_infos_are_not(
    kind: str, more: dict[str, object], kept: tuple[str, ...], count: int
) -> None:
    result = [] if kind == "vector" else [1, "9"]
    decoder = ResponseDecoder()
    found = decode(answer(kind, result, **more), decoder=decoder)
    assert (found.warnings, decoder.warnings) == (kept, count)


def error_of(kind: str, text: str) -> dict[str, object]:
    return {"status": "error", "errorType": kind, "error": text}


def result_of(kind: str, result: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": kind, "result": result}}


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (error_of("bad_data", "parse error"), "query", "bad_data: parse error"),
        (error_of("execution", "found duplicate series"), "query", "execution: found duplicate series"),
        (error_of("timeout", "query timed out"), "timeout", "timeout: query timed out"),
        (error_of("unavailable", "not ready"), "status", "unavailable: not ready"),
        (error_of("bad_data", "x" * 500), "query", "bad_data: " + "x" * 187 + "..."),
        (error_of("bad_data", "one\ntwo\x1b[31m"), "query", "bad_data: one two [31m"),
        ({"status": "error", "data": {"resultType": "vector", "result": []}}, "status", ":"),
        (result_of("scalar", [253402300800, "1"]), "decode", None),
        (result_of("scalar", [-62135596801, "1"]), "decode", None),
        ({"status": "success"}, "decode", "the answer holds no data"),
        ({"status": "success", "data": None}, "decode", "the answer holds no data"),
        ({"status": "success", "data": {}}, "decode", None),
        (result_of("vector", {}), "decode", None),
        (result_of("vector", [{"metric": {}}]), "decode", "a sample has neither value nor histogram"),
        (result_of("vector", [{"metric": {}, "value": [1, 2]}]), "decode", None),
        (result_of("vector", [{"metric": {}, "value": [1, "2", "3"]}]), "decode", None),
        (result_of("vector", [{"metric": {"a": 1}, "value": [1, "2"]}]), "decode", None),
        (
            result_of("vector", [{"metric": {}, "value": [1, "two"]}]),
            "decode",
            "a sample's value is not a number: 'two'",
        ),
        (result_of("scalar", []), "decode", None),
        (
            result_of("vector", [{"metric": {}, "value": [1, " 1 "]}]),
            "decode",
            "a sample's value is not a number: ' 1 '",
        ),
        (result_of("scalar", [1, "\u0661"]), "decode", "a sample's value is not a number: '\u0661'"),
        (result_of("scalar", [1, "1e999"]), "decode", "a sample's value is out of range: '1e999'"),
        (result_of("vector", [{"metric": {}, "histogram": {}}]), "decode", None),
        (result_of("vector", [{"metric": {}, "histogram": ["1", {}]}]), "decode", None),
        ([], "decode", None),
        ("text", "decode", None),
        (None, "decode", None),
    ],
)
def test_what_is_not_an_answer(body: object, kind: str, text: str | None) -> None:
    with pytest.raises(PrometheusError) as caught:
        decode(json.dumps(body).encode())
    assert caught.value.kind == kind
    if text is not None:
        assert str(caught.value) == text


@pytest.mark.parametrize("kind", ["matrix", "string"])
def test_other_types_are_refused_by_name(kind: str) -> None:
    result = [{"metric": {}, "values": [[1, "2"]]}] if kind == "matrix" else [1, "text"]
    with pytest.raises(PrometheusError) as caught:
        decode(answer(kind, result))
    assert (caught.value.kind, caught.value.result_type) == ("type", kind)


def test_upstream_reads_any_status_but_error_as_success() -> None:
    assert decode(b'{"data":{"resultType":"vector","result":[]}}').samples == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}',
        b'{"status":"\xff"}',
        b"[" * 100_000,
    ],
)
def test_broken_json(body: bytes) -> None:
    with pytest.raises(PrometheusError) as caught:
        decode(body, 1000)
    assert caught.value.kind == "decode"


def long_vector(count: int) -> bytes:
    elements = ",".join(
        f'{{"metric":{{"__name__":"m","pod":"pod-{number}","text":"}},{{"}},"value":[1700000000.1,"{number}"]}}'
        for number in range(count)
    )
    data = f'{{"resultType":"vector","result":[{elements}]}}'
    return f'{{"status":"success","data":{data},"warnings":["w"]}}'.encode()


@pytest.mark.parametrize("chunk", [1000, 65_536, 1 << 30])
def test_a_long_vector_is_decoded_in_steps_in_its_order(chunk: int) -> None:
    body = long_vector(10_000)
    decoder, steps = ResponseDecoder(), 0
    for start in range(0, len(body), chunk):
        decoder.feed(body[start : start + chunk])
        while decoder.step():
            steps += 1
    result = decoder.finish()
    assert [sample.value for sample in result.samples] == list(range(10_000))
    assert (result.warnings, decoder.warnings) == (("w",), 1)
    assert steps > len(body) // (3 * response.PIECE_BYTES)


def test_a_long_vector_cut_off_is_no_answer() -> None:
    with pytest.raises(PrometheusError) as caught:
        decode(long_vector(10_000)[:-1000], 65_536)
    assert caught.value.kind == "decode"


KEYS = st.sampled_from(["status", "data", "resultType", "result", "metric", "value"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(st.binary() | DOCUMENTS.map(lambda value: json.dumps(value).encode()))
def test_any_input_is_an_answer_or_our_error(body: bytes) -> None:
    caught: PrometheusError | None = None
    try:
        decode(body, 16)
    except PrometheusError as error:
        caught = error
    assert caught is None or (
        caught.kind in {"decode", "status", "query", "timeout", "type"} and len(str(caught)) <= 300
    )


def test_more_samples_than_wanted_are_an_error_and_go_piece_by_piece() -> None:
    """Whether they come in pieces or all at the end."""
    elements = ",".join(f'{{"metric":{{"pod":"p{number}"}},"value":[1,"1"]}}' for number in range(12_000))
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{elements}]}}}}'.encode()
    fits = ResponseDecoder(most=12_000)
    fits.feed(body)
    while fits.step():
        pass
    assert len(fits.finish().samples) == 12_000
    late = ResponseDecoder(most=11_999)
    late.feed(body)
    while late.step():
        pass
    with pytest.raises(PrometheusError, match="more than 11999 samples") as caught:
        late.finish()
    assert caught.value.kind == "size"
    assert [late.drop() for _ in range(4)] == [True, True, False, False]
    early = ResponseDecoder(most=1000)
    early.feed(body)
    with pytest.raises(PrometheusError, match="more than 1000 samples"):
        all(iter(early.step, False))


def element(labels: dict[str, str], **value: object) -> str:
    return json.dumps({"metric": labels, **(value or {"value": [1, "1"]})}, separators=(",", ":"))


BULKY = {
    "samples": (element({}), 20_000),
    "labels": (element({f"l{number}": "" for number in range(100)}), 600),
    "histograms": (element({}, histogram=[1, 0]), 20_000),
    "texts": (element({"pod": "x" * 500_000}), 8),
}


def read(decoder: ResponseDecoder, body: bytes) -> int:
    """Feed an answer; return how many bytes were taken before there was no room for more."""
    for start in range(0, len(body), 65_536):
        try:
            decoder.feed(body[start : start + 65_536])
            while decoder.step():
                pass
        except PrometheusError as error:
            if error.kind != "size":
                raise
            return start
    decoder.finish()
    return len(body)


@pytest.mark.parametrize("name", BULKY)
def test_an_answer_is_bounded_by_the_memory_that_it_takes(name: str) -> None:
    """A short text may be many samples, and a sample may have many labels."""
    one, count = BULKY[name]
    data = f'{{"resultType":"vector","result":[{",".join([one] * count)}]}}'
    body = f'{{"status":"success","data":{data}}}'.encode()
    whole = ResponseDecoder(room=100 * len(body))
    assert read(whole, body) == len(body)
    assert whole.weight >= (len(body) if name == "texts" else 3_500_000)
    assert read(ResponseDecoder(room=whole.weight // 2), body) < 0.7 * len(body), "the rest is not read"


def test_a_text_that_cannot_be_cut_is_not_decoded_where_that_might_take_too_much() -> None:
    elements = ", ".join('{"value":[1,"1"],"metric":{}}' for _ in range(20_000))
    body = f'{{"data":{{"resultType":"vector","result":[{elements}]}}}}'.encode()
    assert len(decode(body).samples) == 20_000
    decoder = ResponseDecoder(room=8_000_000)
    decoder.feed(body)
    assert not decoder.step()
    with pytest.raises(PrometheusError, match="more than 8000000 bytes"):
        decoder.finish()
