import hypothesis
from hypothesis import strategies as st

from fastpath_sandbox.apiserver.store import JSON, Change, Record, Store

PODS = ("", "pods")


def pod(name: str, namespace: str = "default", **labels: str) -> JSON:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {}}


def keys(records: object) -> list[str]:
    assert records is not None
    return [record.key for record in records]  # type: ignore[attr-defined]  # an iterator of records


def test_lists_stand_in_the_order_of_whole_keys() -> None:
    store = Store(10)
    for namespace, name in (("a", "x"), ("b", "x"), ("a-b", "x"), ("a", "y-1"), ("a", "y")):
        store.put(PODS, pod(name, namespace))
    assert keys(store.records(PODS)) == ["a-b/x", "a/x", "a/y", "a/y-1", "b/x"]
    assert keys(store.records(PODS, "a")) == ["a/x", "a/y", "a/y-1"]
    assert keys(store.records(PODS, "a", "a/x")) == ["a/y", "a/y-1"]
    assert keys(store.records(PODS, "c")) == []


def test_the_past_can_be_listed_until_it_is_forgotten() -> None:
    store = Store(10)
    store.put(PODS, pod("a", at="1"))
    store.put(PODS, pod("b", at="2"))
    store.put(PODS, pod("a", at="3"))
    kept = store.get(PODS, "default", "b")
    assert kept is not None
    store.remove(PODS, kept)
    store.put(PODS, pod("c", at="5"))
    past = store.records_at(PODS, 2)
    assert past is not None
    assert [(record.name, record.labels["at"]) for record in past] == [("a", "1"), ("b", "2")]
    assert keys(store.records_at(PODS, 4)) == ["default/a"]
    assert keys(store.records_at(PODS, 9)) == ["default/a", "default/c"]
    store.compact()
    assert store.records_at(PODS, 4) is None
    assert keys(store.records_at(PODS, 5)) == ["default/a", "default/c"]


def test_changes_since_a_version_until_the_log_drops_them() -> None:
    store = Store(2)
    for name in "abc":
        store.put(PODS, pod(name))
    assert store.changes_since(PODS, 0) is None
    newer = store.changes_since(PODS, 1)
    assert newer is not None
    assert [change.version for change in newer] == [2, 3]
    assert store.horizon(PODS) == 1
    assert store.changes_since(PODS, 3) == []


def test_compaction_reaches_kinds_that_have_no_objects() -> None:
    store = Store(10)
    store.put(PODS, pod("a"))
    store.compact()
    assert store.changes_since(("", "services"), 0) is None
    assert store.changes_since(("", "services"), 1) == []


def test_subscribers_hear_every_change_until_they_leave() -> None:
    store = Store(10)
    heard: list[Change] = []
    leave = store.subscribe(PODS, heard.append)
    record = store.put(PODS, pod("a"))
    store.put(("", "services"), pod("other"))
    last = store.remove(PODS, record)
    leave()
    store.put(PODS, pod("b"))
    assert [(change.version, change.old is None, change.new is None) for change in heard] == [
        (1, True, False),
        (3, False, True),
    ]
    assert last.version == 3
    assert record.version == 1


def test_dependents_follow_owner_references() -> None:
    store = Store(10)
    owned = pod("a")
    owned["metadata"]["ownerReferences"] = [{"uid": "u1"}]
    record = store.put(PODS, owned)
    assert store.dependents("u1") == [(PODS, record)]
    store.put(PODS, pod("a"))
    assert store.dependents("u1") == []


def test_an_object_is_encoded_in_two_parts() -> None:
    record = Record({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": {"x": 1}}, 7)
    assert record.metadata == b'{"name":"a","resourceVersion":"7"}'
    assert record.body == b'"metadata":{"name":"a","resourceVersion":"7"},"spec":{"x":1}'
    assert record.at(8).version == 8
    assert record.document["metadata"]["resourceVersion"] == "7"


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.tuples(st.booleans(), NAMES, NAMES), max_size=30)


@hypothesis.given(STEPS, st.integers(0, 8))
def test_every_kept_version_can_be_rebuilt(steps: list[tuple[bool, str, str]], log_size: int) -> None:
    """The snapshots of the log equal those taken when the version was current, and are refused once they
    would not.
    """
    store = Store(log_size)
    seen: dict[int, list[tuple[str, int]]] = {0: []}
    for put, namespace, name in steps:
        present = store.get(PODS, namespace, name)
        if put:
            store.put(PODS, pod(name, namespace))
        elif present is not None:
            store.remove(PODS, present)
        seen[store.version] = [(record.key, record.version) for record in store.records(PODS)]
    assert all(key == sorted(key) for key in ([key for key, _ in rows] for rows in seen.values()))
    for version, rows in seen.items():
        past = store.records_at(PODS, version)
        if version < store.version - log_size:
            assert past is None
        else:
            assert past is not None
            assert [(record.key, record.version) for record in past] == rows
