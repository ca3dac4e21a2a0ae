"""Lists and watches, decoded in whatever pieces they arrive."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kubernetes import codec
from adapter.kubernetes.codec import (
    PARTIAL_METADATA,
    ListDecoder,
    ObjectCodec,
    PartialMetadata,
    Status,
    WatchDecoder,
    WatchEvent,
)


def document(number: int, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "default",
            "labels": {"app": "web", "number": str(number)},
            "resourceVersion": str(number),
            "annotations": annotations,
            "nested": [{"metadata": {"name": "x"}}, {"metadata": {"name": "y"}}, {"metadata": 1}],
        }
    }


def expected(number: int) -> PartialMetadata:
    return PartialMetadata(f"pod-{number}", "default", {"app": "web", "number": str(number)}, str(number))


def pieces_of(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


def decode(body: bytes, size: int) -> tuple[list[PartialMetadata], codec.ListMeta, int]:
    decoder = ListDecoder(PARTIAL_METADATA)
    batches = [batch for piece in pieces_of(body, size) for batch in decoder.feed(piece)]
    rest, meta = decoder.finish()
    return [each for batch in [*batches, rest] for each in batch], meta, len(batches)


META = {"resourceVersion": "77", "continue": "more", "remainingItemCount": 3}
AWKWARD = 'x"},{"metadata":{"name":"fake"}},{"metadata": \\'
LAYOUTS = {
    "compact": lambda items: json.dumps(
        {"kind": "L", "metadata": META, "items": items}, separators=(",", ":")
    ),
    "spaced": lambda items: json.dumps({"kind": "L", "metadata": META, "items": items}),
    "indented": lambda items: json.dumps({"kind": "L", "metadata": META, "items": items}, indent=2),
    "items first": lambda items: json.dumps({"items": items, "metadata": META}),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("size", [1, 7, 100, 1_000_000])
def test_list_in_any_pieces(layout: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "STEP_BYTES", 700)
    body = layout([document(number, note=AWKWARD) for number in range(30)]).encode()
    objects, meta, steps = decode(body, size)
    assert objects == [expected(number) for number in range(30)]
    assert meta == codec.ListMeta("77", "more")
    assert steps >= 10, "the list was not decoded in slices"


@pytest.mark.timeout(30)
@given(st.lists(st.text(max_size=30), max_size=12), st.integers(1, 400), st.sampled_from(list(LAYOUTS)))
def test_list_with_any_annotations(texts: list[str], size: int, layout: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "STEP_BYTES", 300)
        body = LAYOUTS[layout]([document(number, a=text) for number, text in enumerate(texts)]).encode()
        objects, _, _ = decode(body, size)
    assert objects == [expected(number) for number in range(len(texts))]


def test_an_item_longer_than_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "STEP_BYTES", 500)
    items = [document(0), document(1, big="y" * 5000), document(2), document(3)]
    objects, _, steps = decode(LAYOUTS["compact"](items).encode(), 200)
    assert objects == [expected(number) for number in range(4)]
    assert steps >= 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"resourceVersion":"5"},"items":null}',
        b'{"metadata":{"resourceVersion":"5"}}',
        b'{"metadata":{"resourceVersion":"5"},"items":[]}',
    ],
    ids=["null", "absent", "empty"],
)
def test_empty_list(body: bytes) -> None:
    assert decode(body, 3)[:2] == ([], codec.ListMeta("5", ""))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>", id="html"),
        pytest.param(b'{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}}', id="cut"),
        pytest.param(b'{"metadata":{},"items":[{"metadata":{"name":5}}]}', id="wrong type"),
        pytest.param(b'{"items":[]}', id="no metadata"),
        pytest.param(b"[1]", id="array"),
    ],
)
def test_an_invalid_list_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(body, 4)


def test_wrong_type_in_the_middle_of_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "STEP_BYTES", 500)
    items: list[Any] = [document(number) for number in range(20)]
    items[5]["metadata"]["labels"] = {"app": 5}
    with pytest.raises(msgspec.ValidationError):
        decode(LAYOUTS["compact"](items).encode(), 100)


def test_endless_body_without_items_is_refused() -> None:
    decoder = ListDecoder(PARTIAL_METADATA)
    list(decoder.feed(b"x" * 1_000_000))
    with pytest.raises(msgspec.DecodeError, match="no list of items"):
        list(decoder.feed(b"x" * 100_000))


@pytest.mark.timeout(30)
@given(st.binary(max_size=200), st.integers(1, 50))
def test_list_decoder_survives_any_input(body: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "STEP_BYTES", 20)
        try:
            decode(b'{"metadata":{},"items":[' + body, size)
        except msgspec.DecodeError:
            return


# -- watches -------------------------------------------------------------------------------------------------


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def watch(body: bytes, size: int) -> list[WatchEvent[PartialMetadata] | Status]:
    decoder = WatchDecoder(PARTIAL_METADATA)
    found: list[WatchEvent[PartialMetadata] | Status] = []
    for piece in pieces_of(body, size):
        for batch in decoder.feed(piece):
            found += [batch] if isinstance(batch, Status) else batch
    decoder.finish()
    return found


@pytest.mark.parametrize("size", [1, 13, 64, 100_000])
def test_watch_in_any_pieces(size: int) -> None:
    body = b"".join(line("ADDED", document(number)) for number in range(200))
    body += b"\n" + line("DELETED", document(3)) + line("BOOKMARK", {"metadata": {"resourceVersion": "999"}})
    found = watch(body, size)
    assert found[:200] == [WatchEvent("ADDED", expected(number), str(number)) for number in range(200)]
    assert found[200:] == [
        WatchEvent("DELETED", expected(3), "3"),
        WatchEvent("BOOKMARK", None, "999"),
    ]


def test_a_line_without_an_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_LINE_BYTES", 1000)
    decoder = WatchDecoder(PARTIAL_METADATA)
    assert len(list(decoder.feed(line("ADDED", document(1)) + b"x" * 900))) == 1
    with pytest.raises(msgspec.DecodeError, match="a line of the watch is longer than 1000 bytes"):
        list(decoder.feed(b"x" * 101))


def test_watch_events_come_in_bounded_batches() -> None:
    decoder = WatchDecoder(PARTIAL_METADATA)
    body = b"".join(line("ADDED", document(number)) for number in range(200))
    sizes = [len(batch) for batch in decoder.feed(body) if not isinstance(batch, Status)]
    assert sum(sizes) == 200
    assert max(sizes) <= 64


def test_an_error_line_ends_the_watch_after_earlier_events() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (5)"}
    body = line("ADDED", document(1)) + line("ERROR", gone)
    assert watch(body, 10_000) == [
        WatchEvent("ADDED", expected(1), "1"),
        Status(410, "Expired", "too old resource version: 1 (5)"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"type":"ADDED","object":{}}\n', id="no metadata"),
        pytest.param(b'{"type":"CHANGED","object":{"metadata":{}}}\n', id="unknown type"),
        pytest.param(b"hello\n", id="no JSON"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{}}}', id="ended within a line"),
    ],
)
def test_an_invalid_watch_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        watch(body, 5)


@pytest.mark.timeout(30)
@given(st.binary(max_size=300), st.integers(1, 50))
def test_watch_decoder_survives_any_input(body: bytes, size: int) -> None:
    try:
        watch(body, size)
    except msgspec.DecodeError:
        return


# -- whole objects -------------------------------------------------------------------------------------------


class _Spec(msgspec.Struct):
    replicas: int = 0


class _Whole(msgspec.Struct):
    metadata: PartialMetadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


def keep(whole: _Whole) -> tuple[str, int]:
    return whole.metadata.name, whole.spec.replicas


def keep_raw(raw: msgspec.Raw) -> tuple[str, int]:
    return keep(msgspec.json.decode(raw, type=_Whole))


CODECS = {"decoded": ObjectCodec(_Whole, keep), "raw": ObjectCodec(msgspec.Raw, keep_raw)}


def whole(number: int, note: str) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"note": note}},
        "spec": {"containers": [{"metadata": {"replicas": 7}}]},
    }
    spec = {
        "template": template,
        "replicas": number,
        "volumes": [{"metadata": {"name": note}, "spec": {"replicas": 5}}],
    }
    return {
        "metadata": {"name": f"web-{number}", "annotations": {"note": note}},
        "spec": spec,
        "status": [template],
    }


@pytest.mark.timeout(30)
@pytest.mark.parametrize("object_codec", CODECS.values(), ids=CODECS)
@given(st.lists(st.text(max_size=20), max_size=10), st.integers(1, 600), st.sampled_from(list(LAYOUTS)))
def test_a_list_of_whole_objects_in_any_pieces(
    object_codec: ObjectCodec[tuple[str, int]], texts: list[str], size: int, layout: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "STEP_BYTES", 500)
        body = LAYOUTS[layout]([whole(number, AWKWARD + text) for number, text in enumerate(texts)]).encode()
        decoder = ListDecoder(object_codec)
        found = [each for piece in pieces_of(body, size) for batch in decoder.feed(piece) for each in batch]
        rest, meta = decoder.finish()
    assert [*found, *rest] == [(f"web-{number}", number) for number in range(len(texts))]
    assert meta == codec.ListMeta("77", "more")


@pytest.mark.parametrize("object_codec", CODECS.values(), ids=CODECS)
def test_a_watch_of_whole_objects(object_codec: ObjectCodec[tuple[str, int]]) -> None:
    late = whole(2, "x")
    late["metadata"]["resourceVersion"] = "8"
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    body = (
        line("ADDED", whole(1, "x"))
        + line("DELETED", late)
        + line(
            "BOOKMARK",
            {"kind": "Deployment", "metadata": {"resourceVersion": "9"}, "spec": {"replicas": "none"}},
        )
        + line("ERROR", gone)
    )
    decoder = WatchDecoder(object_codec)
    found = [batch for piece in pieces_of(body, 50) for batch in decoder.feed(piece)]
    assert found[-1] == Status(410, "Expired", "too old")
    assert [event for batch in found[:-1] if not isinstance(batch, Status) for event in batch] == [
        WatchEvent("ADDED", ("web-1", 1), ""),
        WatchEvent("DELETED", ("web-2", 2), "8"),
        WatchEvent("BOOKMARK", None, "9"),
    ]
