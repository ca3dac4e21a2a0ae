"""Where an object is, read from its first bytes, whatever users write into it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.kubernetes import heads
from adapter.kubernetes.codec import PARTIAL_METADATA, ListDecoder, PartialMetadata, Status, WatchDecoder
from adapter.kubernetes.heads import ObjectHead

_TEXTS = st.sampled_from(["namespace", "metadata", 'a"b', "\\", '"namespace":"b"', "b", '{"metadata":{', ""])
_LABELS = st.dictionaries(_TEXTS, _TEXTS, max_size=3)


def typed(namespace: str, name: str, version: str, labels: dict[str, str], kind: str) -> dict[str, Any]:
    """Return an object with its keys in the order of a built-in kind."""
    metadata = {"name": name} | ({"generateName": f"{name}-"} if len(version) % 2 else {})
    if namespace:
        metadata["namespace"] = namespace
    rest: dict[str, Any] = {"uid": "1-2", "resourceVersion": version, "labels": labels, "annotations": labels}
    head = {"kind": kind, "apiVersion": "v1"} if kind else {}
    return {**head, "metadata": {**metadata, **rest}, "spec": {"metadata": {"namespace": "b"}}}


def custom(namespace: str, name: str, version: str, labels: dict[str, str], kind: str) -> dict[str, Any]:
    """Return an object with its keys sorted, as those of a custom resource are."""
    document = typed(namespace, name, version, labels, kind or "Widget")
    return dict(json.loads(json.dumps(document, sort_keys=True)))


OBJECTS = st.builds(
    lambda build, *fields: build(*fields),
    st.sampled_from([typed, custom]),
    st.sampled_from(["a", "b", ""]),
    st.sampled_from(["one", "two"]),
    st.integers(1, 5000).map(str),
    _LABELS,
    st.sampled_from(["", "Pod"]),
)


def encode(document: Any, spaces: bool = False) -> bytes:  # noqa: FBT001, FBT002 - as Hypothesis gives it
    return json.dumps(document, separators=None if spaces else (",", ":")).encode()


def place(document: dict[str, Any]) -> ObjectHead:
    metadata = document["metadata"]
    return ObjectHead(metadata.get("namespace", ""), metadata["resourceVersion"])


@given(OBJECTS, st.booleans())
def test_a_head_says_what_the_whole_object_says(document: dict[str, Any], spaces: bool) -> None:  # noqa: FBT001 - as above
    assert heads.read_head(msgspec.Raw(encode(document, spaces))) == place(document)
    line = encode({"type": "MODIFIED", "object": document}, spaces)
    assert heads.read_event_head(line) in {None, place(document)}


def test_the_head_of_a_built_in_kind_is_found_without_decoding() -> None:
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        line = encode({"type": kind, "object": typed("a", "one", "7", {}, "Pod")})
        assert heads.read_event_head(line[: line.index(b'"labels"')]) == ObjectHead("a", "7")
    assert (
        heads.read_event_head(encode({"type": "ERROR", "object": typed("a", "one", "7", {}, "Pod")})) is None
    )


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, '{"metadata":7}', "{}", '{"metadata":'])
def test_an_object_without_a_head_is_left_to_the_decoder(text: str) -> None:
    assert heads.read_head(msgspec.Raw(text.encode())) is None
    assert not heads.is_other(None, lambda _: False)


def keeps(namespace: str) -> bool:
    return namespace == "a"


@settings(max_examples=60)
@given(st.lists(OBJECTS, max_size=12), st.integers(1, 400))
def test_lists_and_watches_leave_out_other_namespaces(documents: list[dict[str, Any]], size: int) -> None:
    def pieces(text: bytes) -> list[bytes]:
        return [text[at : at + size] for at in range(0, len(text), size)]

    listed: list[PartialMetadata] = []
    decoder = ListDecoder(PARTIAL_METADATA.keeping(keeps))
    for piece in pieces(encode({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": documents})):
        for batch in decoder.feed(piece):
            listed += batch
    listed += decoder.finish()[0]
    own = [document["metadata"]["name"] for document in documents if keeps(place(document).namespace)]
    assert [one.name for one in listed] == own
    lines = b"".join(encode({"type": "ADDED", "object": document}) + b"\n" for document in documents)
    watch = WatchDecoder(PARTIAL_METADATA.keeping(keeps))
    events = []
    for said in (batch for piece in pieces(lines) for batch in watch.feed(piece)):
        assert not isinstance(said, Status)
        events += said
    names = [event.object.name for event in events if isinstance(event.object, PartialMetadata)]
    versions = [document["metadata"]["resourceVersion"] for document in documents]
    assert (names, [event.version for event in events]) == (own, versions)
