import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.prometheus import response
from adapter.prometheus.response import ArrayShape, Splitter

SIZE = 64


def cut(shape: ArrayShape, body: bytes, chunk: int, size: int = SIZE) -> tuple[list[bytes], bytes]:
    cutter = Splitter(shape, size)
    found = []
    for start in range(0, len(body), chunk):
        cutter.feed(body[start : start + chunk])
        while (piece := cutter.take()) is not None:
            found.append(piece)
    return found, cutter.finish()


def series_body(series: list[dict[str, str]], head: str = "", tail: str = "") -> bytes:
    text = ",".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in series)
    return f'{{"status":"success",{head}"data":[{text}]{tail}}}'.encode()


def vector_body(elements: list[dict[str, object]]) -> bytes:
    text = ",".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in elements)
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{text}]}}}}'.encode()


# values made of what a boundary is made of, so that a cut inside a string would be found
NASTY = st.text(st.sampled_from('},{"\\[]:ametric _'), max_size=12)
NAMES = st.from_regex(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,5}"), fullmatch=True)
# the metadata of UTF-8 label names (Prometheus 3): any first character
ANY_NAMES = NAMES | NASTY


@given(series=st.lists(st.dictionaries(ANY_NAMES, NASTY, min_size=1), max_size=30), chunk=st.integers(1, 200))
def test_series_are_the_same_in_pieces_as_whole(series: list[dict[str, str]], chunk: int) -> None:
    found, rest = cut(response.SERIES, series_body(series), chunk)
    read = [each for piece in found for each in json.loads(piece)] + json.loads(rest)["data"]
    assert read == series


@given(
    elements=st.lists(
        st.fixed_dictionaries({"metric": st.dictionaries(ANY_NAMES, NASTY), "value": st.just([1.5, "2"])}),
        max_size=30,
    ),
    chunk=st.integers(1, 200),
)
def test_vectors_are_the_same_in_pieces_as_whole(elements: list[dict[str, object]], chunk: int) -> None:
    found, rest = cut(response.VECTOR, vector_body(elements), chunk)
    read = [each for piece in found for each in json.loads(piece)] + json.loads(rest)["data"]["result"]
    assert read == elements


def test_long_answers_are_split_and_no_piece_is_much_too_long() -> None:
    series = [{"__name__": f"m{number}", "pod": "p"} for number in range(100)]
    found, rest = cut(response.SERIES, series_body(series), 1000)
    assert len(found) > 20
    assert max(map(len, found)) <= 2 * SIZE + 2
    assert len(rest) < 2 * SIZE + 30


def test_what_stands_before_and_after_the_array_is_no_hindrance() -> None:
    series = [{"__name__": f"m{number}", "pod": "p"} for number in range(20)]
    body = series_body(series, head='"isPartial":false,', tail=',"warnings":["partial"]')
    found, rest = cut(response.SERIES, body, 50)
    assert found
    assert json.loads(rest)["warnings"] == ["partial"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"data":[{"__name__":"a"},{"__name__":"b"}],"status":"success"}',
        b'{ "status": "success", "data": [ {"__name__": "a"}, {"__name__": "b"} ] }',
        b'{"status":"error","errorType":"bad_data","error":"},{\\"a"}',
        b'{"status":"success","data":null}',
        b"<html>" + b"x" * 5000,
        b"",
    ],
    ids=["order", "blanks", "error", "null", "page", "empty"],
)
def test_an_answer_of_another_form_is_returned_whole(body: bytes) -> None:
    assert cut(response.SERIES, body, 7) == ([], body)


def test_an_element_longer_than_a_piece_is_one_piece() -> None:
    series = [{"__name__": "a", "long": "x" * 1000}, {"__name__": "b"}, {"__name__": "c", "long": "y" * 1000}]
    found, rest = cut(response.SERIES, series_body(series), 100)
    assert [each for piece in found for each in json.loads(piece)] + json.loads(rest)["data"] == series
