"""A store that is filled from lists and events: what is removed, and what one bad object does to others."""

from dataclasses import replace

from adapter import errors
from adapter.kubernetes.cache.scope import SliceScope
from adapter.kubernetes.cache.store import ObjectCache
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata, Unreadable, WatchEvent
from adapter.model.autoscaling import slices
from tests.kubernetes.apiclient import PODS, error_of, unconnected


class Filled:
    """A store that fails on changes of objects with the name ``bad``."""

    def __init__(self, scope: SliceScope | None = None) -> None:
        self.changes: list[str] = []
        context = replace(unconnected(), scope=scope)
        self.problems = context.problems
        self.store: ObjectCache[PartialMetadata] = ObjectCache(
            ListWatch(PARTIAL_METADATA, PODS), context, self.change, "pods", listed=lambda: iter(())
        )

    def change(self, _: str, name: str) -> None:
        if name == "bad":
            raise ZeroDivisionError
        self.changes.append(name)

    async def list_in(self, namespace: str, *names: str, error: errors.KubernetesError | None = None) -> None:
        """Fill the store from a list of these objects, which all are in ``other``."""
        async with self.store.replacing(namespace) as put:
            for name in names:
                put(PartialMetadata(name, "other"))
            if error is not None:
                raise error

    def names(self) -> list[str]:
        return [obj.name for obj in self.store]


async def test_a_list_that_breaks_off_removes_nothing() -> None:
    filled = Filled()
    filled.store.put(PartialMetadata("a", "other"))
    await error_of(filled.list_in("", "b", error=errors.KubernetesError(0, "reset", "cannot")))
    assert filled.names() == ["a", "b"]


async def test_a_list_removes_absent_objects_of_its_namespaces() -> None:
    filled = Filled()
    for number in range(5000):
        filled.store.put(PartialMetadata(f"gone-{number}", "other"))
    filled.store.put(PartialMetadata("gone", "default"))
    await filled.list_in("other", "a")
    assert filled.names() == ["a", "gone"]
    await filled.list_in("", "a")
    assert filled.names() == ["a"]
    await filled.store.clear("other")
    assert filled.names() == []


def test_a_failure_of_one_object_keeps_no_other_from_the_store() -> None:
    filled = Filled()
    for kind, name in [("ADDED", "bad"), ("ADDED", "good"), ("DELETED", "bad"), ("DELETED", "good")]:
        filled.store.apply(WatchEvent(kind, PartialMetadata(name, "default"), "1"))
    assert filled.changes == ["good", "good"]
    assert filled.problems.active() == {("object", "pods default/bad"): "ZeroDivisionError"}


def test_an_object_that_cannot_be_read_is_reported_until_it_can_or_is_gone() -> None:
    filled = Filled()
    known, lost = PartialMetadata("a", "default"), Unreadable("default", "a", "2", b"", "ValueError: no")
    for end in [WatchEvent("MODIFIED", known, "3"), WatchEvent("DELETED", lost, "3")]:
        filled.store.apply(WatchEvent("ADDED", known, "1"))
        filled.store.apply(WatchEvent("MODIFIED", lost, "2"))
        assert filled.names() == ["a"]
        assert filled.problems.active() == {("object", "pods default/a"): "ValueError: no"}
        filled.store.apply(end)
        assert not filled.problems.active()


async def test_a_list_keeps_the_last_state_of_an_object_that_cannot_be_read() -> None:
    filled = Filled()
    filled.store.put(PartialMetadata("a", "other"))
    async with filled.store.replacing("") as put:
        put(Unreadable("other", "a", "2", b"", "ValueError: no"))
    assert filled.names() == ["a"]


def test_objects_of_other_slices_are_dropped() -> None:
    scope = SliceScope()
    scope.set({slices.slice_of("default")})
    filled = Filled(scope)
    for namespace in ("default", "kube-system"):
        filled.store.apply(WatchEvent("ADDED", PartialMetadata(f"in {namespace}", namespace), "1"))
    filled.store.apply(WatchEvent("BOOKMARK", None, "2"))
    assert filled.names() == ["in default"]
