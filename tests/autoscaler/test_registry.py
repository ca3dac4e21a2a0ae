"""The registry: which autoscalers are decided again when others of their target come or go."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import AutoscalerRegistry
from adapter.kubernetes.cache.autoscalers import TargetKey
from adapter.model.autoscaling.shards import Shard
from tests.support.controller import fpa


class HandController:
    """Notes what is touched."""

    def __init__(self) -> None:
        self.touched: list[Key] = []

    def put(self, _: object) -> None:
        """Decide nothing."""

    def touch_all(self, keys: Iterable[Key]) -> None:
        self.touched += keys


def test_the_others_of_a_target_are_decided_again_while_they_are_few() -> None:
    """A tenant may have thousands for one target: each change would decide all of them."""
    anything: Any = SimpleNamespace(put=lambda *_: None)
    controller: Any = HandController()
    registry = AutoscalerRegistry(anything, anything, Shard(), answers=False)
    registry.controller = controller
    spec = fpa().spec
    found = [msgspec.structs.replace(fpa(name=f"web-{number}"), spec=spec) for number in range(21)]
    target = TargetKey.of("default", found[0].spec.scale_target_ref)
    for each in found[:20]:
        registry.put(each)
    registry.rivals_changed(target)
    assert sorted(controller.touched) == sorted(map(Key.of, found[:20]))
    controller.touched.clear()
    registry.put(found[20])
    registry.rivals_changed(target)
    assert controller.touched == []
