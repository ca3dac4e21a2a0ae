import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import PrometheusError
from adapter.model.metrics import HISTOGRAM, QueryResult
from adapter.prometheus import response
from adapter.prometheus.response import ResponseDecoder
from tests.support.scripts import Recorded

DOCUMENT = Path(__file__).parent / "documents" / "responses"


def decode(body: bytes, chunk: int = 1 << 20, decoder: ResponseDecoder | None = None) -> QueryResult:
    decoder = decoder or ResponseDecoder()
    for start in range(0, len(body), chunk):
        decoder.feed(body[start : start + chunk])
        while decoder.step():
            pass
    return decoder.finish()


def said_of(body: str) -> list[str]:
    """Return what an answer says, in lines; what the reader of JSON says of one is its own."""
    decoder = ResponseDecoder()
    try:
        found = decode(body.encode(), 1000, decoder)
    except PrometheusError as error:
        said, ours, _ = str(error).partition("not an answer of Prometheus: ")
        return [f"fails: {error.kind} {error.result_type}".rstrip() + f": {said}{ours}".rstrip()]
    values = [("histogram" if each.value is HISTOGRAM else repr(each.value), each) for each in found.samples]
    samples = [f"{each.labels} {value} at {each.time!r}" for value, each in values]
    return [f"{found.type} {found.warnings} of {decoder.warnings}", *samples]


def test_documents(recorded: Recorded) -> None:
    """A line after `> ` is an answer, and below it is what it says."""
    said = []
    for line in DOCUMENT.read_text().splitlines():
        said += [line] if line.startswith(("# ", "> ")) else []
        said += said_of(line[2:]) if line.startswith("> ") else []
    recorded(DOCUMENT, "".join(f"{line}\n" for line in said))


@pytest.mark.parametrize("body", [b"", b'{"status":"\xff"}', b"[" * 100_000])
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
