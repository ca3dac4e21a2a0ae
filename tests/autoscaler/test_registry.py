"""The registry: which controller learns of an autoscaler, and which are decided again."""

from typing import Any

import msgspec
import pytest

from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.registry import AutoscalerRegistry
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.autoscalers import TargetKey
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from tests.autoscaler.looped import hpa
from tests.support.controller import Bench, fpa

OWNED, OTHER = slices.slice_of("default"), slices.slice_of("shop")


class Calls:
    """The calls that were made, by name; stands for any collaborator."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.made.append((name, *arguments))


class OwnedRegistry:
    def __init__(self, *owners: tuple[str, str, str]) -> None:
        self.rivals, self.scrapes, self.controller = Calls(), Calls(), Calls()
        self.changes = Changes()
        self.rivals.owners = lambda _: owners  # type: ignore[attr-defined]
        rivals: Any = self.rivals
        scrapes: Any = self.scrapes
        controller: Any = self.controller
        self.registry = AutoscalerRegistry(rivals, scrapes, self.changes)
        self.registry.controller = controller


@pytest.mark.parametrize("count", [20, 21])
def test_the_others_of_a_target_are_decided_again_while_they_are_few(count: int) -> None:
    """A tenant may have thousands for one target: each change would decide all of them."""
    names = [(KIND, "default", f"web-{number}") for number in range(count - 1)]
    bench = OwnedRegistry(*names, (HPA_KIND, "default", "web"))
    bench.registry.rivals_changed(TargetKey.of("default", fpa().spec.scale_target_ref))
    keys = [*(Key(namespace, name) for _, namespace, name in names), Key("default", "web", is_native=True)]
    assert list(bench.changes.take()[0]) == (keys if count == 20 else [])


def test_what_happens_to_an_autoscaler_is_a_change() -> None:
    bench, key, other = OwnedRegistry(), Key("default", "web"), Key("shop", "web")
    bench.changes.note([key])
    bench.changes.note_scraped(other)
    bench.changes.note_scraped(key)
    bench.changes.note_scraped("what a rule scrapes")
    bench.registry.delayed(key)
    assert bench.changes.wake.is_set()
    keys, ((owner, event),) = bench.changes.take()
    assert (list(keys), owner, event.reason) == ([key, other], key, "MetricsDelayed")
    assert not bench.changes.wake.is_set()
    assert not any(bench.changes.take()), "each is taken once"
    assert "--prometheus-max-queries-per-second" in event.message


def test_what_a_native_autoscaler_is_stays_out_of_the_conflicts() -> None:
    """The cache of HPAs puts it there."""
    bench = OwnedRegistry()
    bench.registry.put(hpa("Boost"))
    bench.registry.remove(Key("default", "web", is_native=True))
    assert bench.rivals.made == []


def test_autoscalers_are_registered_before_any_is_decided() -> None:
    bench, own = OwnedRegistry(), fpa()
    bench.registry.controller = None
    bench.registry.put(own)
    bench.registry.remove(Key.of(own))
    assert bench.rivals.made == [("put", own), ("remove", "default", "web")]
    assert bench.scrapes.made == [("put", own), ("remove", Key.of(own))]
    assert bench.controller.made == []


async def test_autoscalers_are_decided_while_their_slice_is_owned() -> None:
    bench, own = Bench(), fpa()
    other = msgspec.structs.replace(own, metadata=msgspec.structs.replace(own.metadata, namespace="shop"))
    bench.controller.drop(OTHER)
    for autoscaler in (own, other):
        bench.controller.put(autoscaler)
    assert list(bench.controller.names()) == [Key.of(own)]

    await bench.controller.end(OWNED)
    assert list(bench.controller.names()) == []
    assert bench.controller.find(Key.of(own)) is None
    bench.controller.remove(Key.of(own))
    assert list(bench.owned.states) == [Key.of(own)], "what was learned is still to be stored"
    bench.controller.drop(OWNED)
    bench.controller.begin(OTHER, None)  # type: ignore[arg-type]  # nothing is boosted
    bench.controller.put(other)
    assert list(bench.controller.names()) == [Key.of(other)]
