"""A namespace that is too large for one process has an event."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.large_namespaces import LargeNamespaces
from adapter.autoscaler.controller.registry import AutoscalerRegistry
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.interfaces import Key
from adapter.telemetry.metrics import Monitoring


class Owned:
    def __init__(self) -> None:
        self.autoscalers: list[Key] = []

    def names(self) -> Iterator[Key]:
        return iter(self.autoscalers)


class LateNamespaces:
    def __init__(self, **counts: int) -> None:
        unused: Any = None
        registry = AutoscalerRegistry(unused, unused, Changes())
        self.controller, self._changes = Owned(), registry.changes
        self._events: list[tuple[Key, Event]] = []
        for namespace, count in counts.items():
            self.controller.autoscalers += [Key(namespace, f"web-{number}") for number in range(count)]
        owned: Any = self.controller
        registry.controller = owned
        self.monitoring = Monitoring()
        self.large = LargeNamespaces(registry, self.monitoring)

    def decide(self, *, late: int, in_time: int) -> None:
        for lag in [0.01] * in_time + [1.5] * late:
            self.monitoring.scaler_lag.observe(lag)

    @property
    def events(self) -> list[tuple[Key, Event]]:
        self._events += self._changes.take()[1]
        return self._events


@pytest.mark.looptime
async def test_a_large_namespace_whose_decisions_are_late_has_an_event_every_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = LateNamespaces(shop=400, mail=200)
    task = asyncio.create_task(bench.large.run())
    for events in (1, 2):
        bench.decide(late=2, in_time=98)
        await asyncio.sleep(601)
        assert len(bench.events) == events
    task.cancel()
    key, event = bench.events[0]
    assert (key, event.type, event.reason) == (Key("shop", "web-0"), "Warning", "NamespaceTooLarge")
    assert "400 of the 600 autoscalers of one scaler are in this namespace" in event.message
    assert "a namespace is too large for one scaler" in caplog.text


@pytest.mark.parametrize(
    ("counts", "late"),
    [
        pytest.param({"shop": 400, "mail": 200}, 1, id="in time"),
        pytest.param({"shop": 300, "mail": 300}, 2, id="two of a size"),
        pytest.param({"shop": 400, "mail": 100}, 2, id="few in all"),
        pytest.param({}, 2, id="none any more"),
    ],
)
def test_others_have_none(counts: dict[str, int], late: int) -> None:
    bench = LateNamespaces(**counts)
    bench.decide(late=late, in_time=100 - late)
    bench.large.look()
    assert bench.events == []


def test_only_decisions_since_the_last_look_count() -> None:
    bench = LateNamespaces(shop=600)
    bench.decide(late=50, in_time=50)
    bench.large.look()
    bench.decide(late=0, in_time=100)
    bench.large.look()
    assert len(bench.events) == 1
