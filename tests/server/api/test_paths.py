"""Paths and query parameters of the metrics APIs: properties, and what is too large.

Each form, and each way to be wrong, is in tests/server/transcripts.
"""

import contextlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.metrics import CustomQuestion
from adapter.server.api import paths, query_string
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP
from adapter.server.api.query_string import CallOptions


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["watch", "w%61tch", "labelSelector", "label%53elector", "x", ""]),
            st.text("af0l%6es;=&+1 ", max_size=8),
        )
    )
)
def test_options_and_parameters_are_read_from_the_same_pairs(pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{key}={value}" for key, value in pairs)
    decoded = dict(reversed(list(query_string.decode_pairs(query))))
    parameters = query_string.parse_parameters(query)
    assert parameters.get("labelSelector") == decoded.get("labelSelector")
    is_watch = query_string.read_call_options(query).watch
    assert is_watch == ("watch" in decoded and decoded["watch"].lower() not in {"0", "false"})


def test_long_words() -> None:
    options = query_string.read_call_options(f"pretty={'1' * 100_000}&watch={'0' * 100_000}")
    assert options == CallOptions(pretty=False, watch=True)
    path = paths.parse_metric_path(EXTERNAL_GROUP, "v1beta1", ["namespaces", "n", "m"])
    with pytest.raises(errors.BadRequestError, match="value out of range"):
        query_string.build_question(path, {"limit": "9" * 5000}, watch=False)


def test_longer_targets_than_anyone_needs() -> None:
    assert paths.split_target("/livez?" + "&".join("a" * 1001)) == ("/livez", "&".join("a" * 1001))
    with pytest.raises(errors.BadRequestError, match="too many query parameters"):
        paths.split_target("/livez?" + "&".join("a" * 1002))
    assert paths.decode_segments("/a" * 100) == ("a",) * 100
    assert paths.decode_segments("/" + "a" * 16_383) == ("a" * 16_383,)
    for path in ("/a" * 101, "/" + "%41" * 5_462):
        with pytest.raises(errors.NotFoundError):
            paths.decode_segments(path)


LARGE = {
    "requirements": ",".join(["a"] * 4002),
    "values": "a in (" + ",".join(["b"] * 4000) + ")",
    "brackets": "(" * 4001,
    "operators": "!" * 4001,
    "length": " " * (32 * 1024 + 1),
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("parameter", ["labelSelector", "metricLabelSelector", "fieldSelector"])
@pytest.mark.parametrize(
    ("group", "version", "rest"),
    [
        (CUSTOM_GROUP, "v1beta2", "namespaces/n/pods/*/m"),
        (EXTERNAL_GROUP, "v1beta1", "namespaces/n/m"),
        (RESOURCE_GROUP, "v1beta1", "pods"),
        (RESOURCE_GROUP, "v1beta1", "nodes/n"),
    ],
)
def test_a_selector_that_is_too_large(group: str, version: str, rest: str, parameter: str, text: str) -> None:
    path = paths.parse_metric_path(group, version, rest.split("/"))
    parameters = query_string.parse_parameters(f"{parameter}={quote(text)}")
    with pytest.raises(errors.BadRequestError) as caught:
        query_string.build_question(path, parameters, watch=False)
    assert caught.value.message == f"{parameter} is too large"


def test_a_large_selector_is_read() -> None:
    text = "app in (" + ",".join(f"web-{number}" for number in range(3000)) + ")"
    path = paths.parse_metric_path(CUSTOM_GROUP, "v1beta2", ["namespaces", "n", "pods", "*", "m"])
    question = query_string.build_question(path, {"labelSelector": text}, watch=False)
    assert isinstance(question, CustomQuestion)
    assert len(question.objects.requirements[0].values) == 3000


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_any_target_is_a_path_or_a_bad_request(text: str) -> None:
    try:
        path, query = paths.split_target(f"/apis/{CUSTOM_GROUP}/v1beta1/{text}")
        segments = paths.decode_segments(path)
        found = paths.parse_metric_path(CUSTOM_GROUP, "v1beta1", segments[3:])
        query_string.build_question(found, query_string.parse_parameters(query), watch=False)
    except (errors.BadRequestError, errors.NotFoundError, errors.PlainError):
        return
    else:
        parts = (found.namespace, found.resource, found.name, found.metric)
        assert not any(
            part in {"", ".", ".."} or "/" in part or "%" in part for part in parts if part is not None
        )


@given(st.text())
def test_any_query_is_parsed_or_a_bad_request(query: str) -> None:
    assert isinstance(query_string.parse_parameters(query), dict)
    with contextlib.suppress(errors.BadRequestError):
        assert isinstance(query_string.read_call_options(query), CallOptions)
