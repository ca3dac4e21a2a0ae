"""Lists and watches, decoded in whatever pieces they arrive; objects that cannot be read cost no others."""

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kubernetes import codec, nesting
from adapter.kubernetes.codec import (
    PARTIAL_METADATA,
    ListDecoder,
    ObjectCodec,
    PartialMetadata,
    Status,
    Unreadable,
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


def decode(
    body: bytes,
    size: int,
    object_codec: ObjectCodec[Any] = PARTIAL_METADATA,
    lose: Callable[[Unreadable], None] | None = None,
) -> tuple[list[Any], codec.ListMeta, int]:
    """Return the objects, the metadata of the list, and the number of steps."""
    decoder = ListDecoder(object_codec, lose)
    batches = [batch for piece in pieces_of(body, size) for batch in decoder.feed(piece)]
    rest, meta = decoder.finish()
    return [kept for batch in [*batches, rest] for kept in batch], meta, len(batches)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "STEP_BYTES", 700)


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
def test_list_in_any_pieces(layout: Any, size: int) -> None:
    body = layout([document(number, note=AWKWARD) for number in range(30)]).encode()
    objects, meta, steps = decode(body, size)
    assert objects == [expected(number) for number in range(30)]
    assert meta == codec.ListMeta("77", "more")
    assert steps >= 10, "the list was not decoded in slices"


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


def line(kind: str, item: dict[str, Any] | str) -> bytes:
    return f'{{"type":"{kind}","object":{item if isinstance(item, str) else json.dumps(item)}}}\n'.encode()


def watch(
    body: bytes, size: int, object_codec: ObjectCodec[Any] = PARTIAL_METADATA
) -> list[WatchEvent[Any] | Status]:
    decoder = WatchDecoder(object_codec)
    events: list[WatchEvent[Any] | Status] = []
    for piece in pieces_of(body, size):
        for batch in decoder.feed(piece):
            events += [batch] if isinstance(batch, Status) else batch
    decoder.finish()
    return events


@pytest.mark.parametrize("size", [1, 13, 64, 100_000])
def test_watch_in_any_pieces(size: int) -> None:
    body = b"".join(line("ADDED", document(number)) for number in range(200))
    body += b"\n" + line("DELETED", document(3)) + line("BOOKMARK", {"metadata": {"resourceVersion": "999"}})
    found = watch(body, size)
    assert found[:200] == [WatchEvent("ADDED", expected(number), str(number)) for number in range(200)]
    assert found[200:] == [WatchEvent("DELETED", expected(3), "3"), WatchEvent("BOOKMARK", None, "999")]


def test_a_line_without_an_end_is_not_waited_for() -> None:
    decoder = WatchDecoder(PARTIAL_METADATA)
    assert len(list(decoder.feed(line("ADDED", document(1)) + b"x" * (codec.OBJECT_BYTES - 100)))) == 1
    with pytest.raises(msgspec.DecodeError, match="a line of the watch is longer than 16777216 bytes"):
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
        objects, meta, _ = decode(body, size, object_codec)
    assert objects == [(f"web-{number}", number) for number in range(len(texts))]
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
    assert watch(body, 50, object_codec) == [
        WatchEvent("ADDED", ("web-1", 1), ""),
        WatchEvent("DELETED", ("web-2", 2), "8"),
        WatchEvent("BOOKMARK", None, "9"),
        Status(410, "Expired", "too old"),
    ]


# -- objects that cannot be read ----------------------------------------------------------------------------

FAILURES = [
    RecursionError("x" * 1000),
    ValueError("\x1b[2Jno"),
    KeyError("k"),
    ZeroDivisionError(),
    MemoryError(),
]


def failing(failure: Exception) -> ObjectCodec[str]:
    def keep(thing: _Whole) -> str:
        if thing.metadata.name.startswith("bad"):
            raise failure
        return f"{thing.metadata.name}={thing.spec.replicas}"

    return ObjectCodec(_Whole, keep)


PLAIN = failing(ValueError("refused"))


def thing(name: str, replicas: object = 1, **more: object) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "metadata": {"name": name, "namespace": "default", "resourceVersion": "7"},
        "spec": {"replicas": replicas, **more},
    }


def nested(levels: int) -> str:
    return '{"a":[' * (levels // 2) + "1" + "]}" * (levels // 2)


def deep(name: str, levels: int) -> str:
    """Return an object that is nested deep both before and after what is read of it."""
    inner = nested(levels)
    return (
        f'{{"apiVersion":"example.com/v1","deep":{inner},"metadata":{{"name":"{name}","namespace":"default",'
        f'"managedFields":[{inner}]}},"spec":{{"replicas":5,"template":{inner}}}}}'
    )


def listing(*items: str) -> bytes:
    tail = '],"kind":"ThingList","metadata":{"resourceVersion":"9"}}'
    return ('{"apiVersion":"example.com/v1","items":[' + ",".join(items) + tail).encode()


def read(
    body: bytes, size: int, object_codec: ObjectCodec[str] = PLAIN
) -> tuple[list[str], list[Unreadable]]:
    lost: list[Unreadable] = []
    kept, meta, _ = decode(body, size, object_codec, lost.append)
    assert meta.resource_version == "9"
    return kept, lost


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("at", [0, 7, 39])
def test_an_object_that_cannot_be_kept_costs_the_list_no_other(failure: Exception, at: int) -> None:
    items = [json.dumps(thing("bad" if number == at else f"t{number}")) for number in range(40)]
    kept, lost = read(listing(*items), 500, failing(failure))
    assert kept == [f"t{number}=1" for number in range(40) if number != at]
    assert [(each.namespace, each.name, each.resource_version) for each in lost] == [("default", "bad", "7")]
    assert lost[0].reason.startswith(type(failure).__name__)
    assert lost[0].reason.isascii()
    assert lost[0].reason.isprintable()
    assert len(lost[0].reason) < 300


def test_an_object_of_a_wrong_type_costs_the_list_no_other() -> None:
    items = [json.dumps(thing(f"t{number}", "many" if number % 10 == 3 else 1)) for number in range(40)]
    kept, lost = read(listing(*items), 100)
    assert len(kept) == 36
    assert [each.name for each in lost] == ["t3", "t13", "t23", "t33"]
    assert lost[0].reason == "ValidationError: Expected `int`, got `str` - at `$.spec.replicas`"


def test_without_a_receiver_an_unreadable_object_fails_the_list() -> None:
    decoder = ListDecoder(PLAIN)
    list(decoder.feed(listing(json.dumps(thing("bad")))))
    with pytest.raises(msgspec.DecodeError, match="default/bad cannot be read: ValueError: refused"):
        decoder.finish()


def test_an_object_without_a_name_fails_the_list() -> None:
    with pytest.raises(msgspec.DecodeError):
        read(listing('{"spec":{}}'), 100)


LEVELS = [200, *range(980, 1010, 2), 2_000, 10_000]


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("size", [700, 1_000_000])
def test_a_deeply_nested_object_is_read_as_any_other(levels: int, size: int) -> None:
    items = [json.dumps(thing(f"t{number}")) for number in range(20)]
    body = listing(*items[:10], deep("deep", levels), *items[10:], deep("last", levels))
    kept, lost = read(body, size)
    assert kept == [*(f"t{n}=1" for n in range(10)), "deep=5", *(f"t{n}=1" for n in range(10, 20)), "last=5"]
    assert not lost


def test_a_deeply_nested_object_that_cannot_be_kept() -> None:
    kept, lost = read(listing(json.dumps(thing("t1")), deep("bad", 3_000), json.dumps(thing("t2"))), 700)
    assert kept == ["t1=1", "t2=1"]
    assert [each.name for each in lost] == ["bad"]


def test_the_text_between_items_within_an_item_takes_linear_time() -> None:
    """Read an object with 90,000 places that look like the beginning of the next one."""
    inner = "[" + ",".join(['{"apiVersion":1}'] * 90_000) + "]"
    spec = f'{{"replicas":2,"more":{inner}}}'
    large = f'{{"apiVersion":"example.com/v1","metadata":{{"name":"large"}},"spec":{spec}}}'
    body = listing(json.dumps(thing("t1")), large, json.dumps(thing("t2")))
    started = time.thread_time()
    kept, _ = read(body, 64 * 1024)
    assert time.thread_time() - started < 5, "0.3 s, and minutes if each place costs a read of all before it"
    assert kept == ["t1=1", "large=2", "t2=1"]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
def test_an_event_that_cannot_be_kept_costs_the_watch_no_other(failure: Exception) -> None:
    body = b"".join(
        line(kind, thing(name))
        for kind, name in [("ADDED", "a"), ("MODIFIED", "bad"), ("DELETED", "bad"), ("ADDED", "b")]
    )
    found = watch(body, 50, failing(failure))
    assert [event.version for event in found if isinstance(event, WatchEvent)] == ["7"] * 4
    objects = [event.object for event in found if isinstance(event, WatchEvent)]
    assert objects[::3] == ["a=1", "b=1"]
    for lost in objects[1:3]:
        assert isinstance(lost, Unreadable)
        assert (lost.namespace, lost.name) == ("default", "bad")


@pytest.mark.parametrize("levels", LEVELS)
def test_a_deeply_nested_event_is_read_as_any_other(levels: int) -> None:
    body = line("ADDED", thing("a")) + line("ADDED", deep("deep", levels))
    found = watch(body + line("BOOKMARK", thing("b")), 10_000, PLAIN)
    assert [getattr(event, "object", "") for event in found] == ["a=1", "deep=5", None]


# -- pruning -------------------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from('a"\\[]{}\n,:é'), max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=40,
)


def cut(value: Any, levels: int) -> Any:
    if not isinstance(value, list | dict):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [cut(each, levels - 1) for each in value]
    return {key: cut(each, levels - 1) for key, each in value.items()}


@given(VALUES, st.integers(0, 4), st.integers(1, 30))
def test_pruned_json_is_the_value_without_its_depths(value: Any, levels: int, size: int) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "LEVELS", levels)
        pruner = nesting.Pruner()
        pieces = [pruner.feed(text[start : start + size]) for start in range(0, len(text), size)]
        pruned = json.loads(b"".join([*pieces, pruner.finish()]))
    assert cut(pruned, levels) == cut(value, levels)
    assert cut(pruned, levels + 1) == pruned


@pytest.mark.parametrize("unit", ["[],", "[[]],", "[[[[[]]]]],", '"[",', '{"a":{"b":1}},', '["\\"",[', "1,"])
def test_pruning_takes_linear_time(unit: str) -> None:
    text = ("[" + unit * (1_500_000 // len(unit)) + nested(2_000)).encode()
    started = time.thread_time()
    nesting.prune(text)
    assert time.thread_time() - started < 2
