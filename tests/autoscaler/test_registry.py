"""The registry: which autoscalers are decided again when others of their target come or go."""

from types import SimpleNamespace
from typing import Any

import pytest

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import AutoscalerRegistry
from adapter.kubernetes.cache.autoscalers import TargetKey
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from adapter.model.autoscaling.shards import Shard
from tests.support.controller import fpa


@pytest.mark.parametrize("count", [20, 21])
def test_the_others_of_a_target_are_decided_again_while_they_are_few(count: int) -> None:
    """A tenant may have thousands for one target: each change would decide all of them."""
    names = [(KIND, "default", f"web-{number}") for number in range(count - 1)]
    rivals: Any = SimpleNamespace(owners=lambda _: [*names, (HPA_KIND, "default", "web")])
    touched: list[Key] = []
    registry = AutoscalerRegistry(rivals, SimpleNamespace(), Shard(), answers=False)  # type: ignore[arg-type]  # not called
    registry.controller = SimpleNamespace(loop=SimpleNamespace(touch_all=touched.extend))  # type: ignore[assignment]  # all it calls
    registry.rivals_changed(TargetKey.of("default", fpa().spec.scale_target_ref))
    keys = [Key(namespace, name) for _, namespace, name in names]
    assert touched == ([*keys, Key("default", "web", is_native=True)] if count == 20 else [])
