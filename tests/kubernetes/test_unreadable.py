"""Objects that cannot be decoded or kept, and objects that are nested deep: all others are read."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kubernetes import codec, nesting
from adapter.kubernetes.codec import ListDecoder, ObjectCodec, Status, Unreadable, WatchDecoder, WatchEvent

FAILURES = [
    RecursionError("x" * 1000),
    ValueError("\x1b[2Jno"),
    KeyError("k"),
    ZeroDivisionError(),
    MemoryError(),
]


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""


class _Spec(msgspec.Struct):
    replicas: int = 0


class _Thing(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


def failing(failure: Exception) -> ObjectCodec[str]:
    def keep(thing: _Thing) -> str:
        if thing.metadata.name.startswith("bad"):
            raise failure
        return f"{thing.metadata.name}={thing.spec.replicas}"

    return ObjectCodec(_Thing, keep)


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
    decoder = ListDecoder(object_codec, lost.append)
    kept: list[str] = []
    for start in range(0, len(body), size):
        for batch in decoder.feed(body[start : start + size]):
            kept += batch
    rest, meta = decoder.finish()
    assert meta.resource_version == "9"
    return [*kept, *rest], lost


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "STEP_BYTES", 2000)


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


@pytest.mark.parametrize("levels", [200, *range(900, 1020, 2), 2_000, 10_000])
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


# -- watches -------------------------------------------------------------------------------------------------


def watch(body: bytes, size: int, object_codec: ObjectCodec[str] = PLAIN) -> list[WatchEvent[str]]:
    decoder = WatchDecoder(object_codec)
    found: list[WatchEvent[str]] = []
    for start in range(0, len(body), size):
        for batch in decoder.feed(body[start : start + size]):
            assert not isinstance(batch, Status)
            found += batch
    decoder.finish()
    return found


def line(kind: str, item: str) -> bytes:
    return f'{{"type":"{kind}","object":{item}}}\n'.encode()


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
def test_an_event_that_cannot_be_kept_costs_the_watch_no_other(failure: Exception) -> None:
    body = b"".join(
        line(kind, json.dumps(thing(name)))
        for kind, name in [("ADDED", "a"), ("MODIFIED", "bad"), ("DELETED", "bad"), ("ADDED", "b")]
    )
    found = watch(body, 50, failing(failure))
    assert [each.version for each in found] == ["7"] * 4
    assert [each.object for each in found[::3]] == ["a=1", "b=1"]
    for each in found[1:3]:
        assert isinstance(each.object, Unreadable)
        assert (each.object.namespace, each.object.name) == ("default", "bad")


@pytest.mark.parametrize("levels", [*range(900, 1020, 2), 2_000, 10_000])
def test_a_deeply_nested_event_is_read_as_any_other(levels: int) -> None:
    body = line("ADDED", json.dumps(thing("a"))) + line("ADDED", deep("deep", levels))
    found = watch(body + line("BOOKMARK", json.dumps(thing("b"))), 10_000)
    assert [each.object for each in found] == ["a=1", "deep=5", None]


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
