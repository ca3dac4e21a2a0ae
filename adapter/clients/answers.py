"""Answers of Prometheus that are kept, and the questions on their way to it.

Not here: when a question leaves and with which others (`querycache`). The law: bounded by the number of samples kept; an
answer is forgotten when nobody may use it any more.
"""

import asyncio
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from cachetools import TLRUCache

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult, Sample

KEPT_SAMPLES = 500_000
"""Bound on what one store keeps, counted in samples."""


class Freshness(NamedTuple):
    """How long an answer is used again without asking, and how old it may be when asking fails; seconds."""

    ttl: float
    max_age: float


class TextAnswer(NamedTuple):
    """The answer to a query asked as text. `asked` is monotonic; `failure` is why an older answer stands in, None where none does."""

    result: QueryResult
    asked: float
    failure: PrometheusError | None = None

    @property
    def size(self) -> int:
        """Return how much room it takes."""
        return 1 + len(self.result.samples)


class ObjectAnswer(NamedTuple):
    """The samples of the objects asked for, by name, each object's in the order received; objects without one are absent.

    `asked` is monotonic. `fallbacks` are the objects whose samples only stand in for those that were to be had; `scraped` says that
    some of the objects are scraped, so that other samples may be there at any moment.
    """

    samples: Mapping[str, tuple[Sample, ...]]
    asked: float
    failure: PrometheusError | None = None
    fallbacks: frozenset[str] = frozenset()
    scraped: bool = False

    @property
    def size(self) -> int:
        """Return how much room it takes."""
        return 1 + sum(map(len, self.samples.values()))


class SweepAnswer(NamedTuple):
    """The samples of every object of a metric, by namespace ("" for kinds without one) and name. `asked` is monotonic."""

    samples: Mapping[str, Mapping[str, tuple[Sample, ...]]]
    asked: float
    size: int

    def pick(self, namespace: str, names: tuple[str, ...]) -> ObjectAnswer:
        """Return the answer for some objects."""
        found = self.samples.get(namespace, {})
        return ObjectAnswer({name: found[name] for name in names if name in found}, self.asked)


Key = TypeVar("Key")
Answer = TypeVar("Answer", TextAnswer, ObjectAnswer, SweepAnswer)


class Answers(Generic[Key, Answer]):
    """Answers kept, and questions on their way, by key."""

    def __init__(self, clock: Clock, room: int = KEPT_SAMPLES) -> None:
        """`room`: samples kept at most; each answer counts one more than it has."""
        self.flights: dict[Key, asyncio.Future[Answer]] = {}
        self._kept: TLRUCache[Key, tuple[Answer, float]] = TLRUCache(
            room, ttu=lambda _, kept, __: kept[1], timer=clock.monotonic, getsizeof=lambda kept: kept[0].size
        )

    @property
    def kept_samples(self) -> float:
        """Return how much of the room is taken."""
        return self._kept.currsize

    def get(self, key: Key) -> Answer | None:
        """Return the last answer while anybody may still use it."""
        kept = self._kept.get(key)
        return kept[0] if kept else None

    def keep(self, key: Key, answer: Answer, seconds: float) -> None:
        """Keep an answer until `seconds` after it was asked for; one larger than the whole room is not kept."""
        if answer.size <= self._kept.maxsize:
            self._kept[key] = (answer, answer.asked + seconds)

    def open(self, key: Key) -> asyncio.Future[Answer]:
        """Return a new flight, forgotten when it lands."""
        flight: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.flights[key] = flight
        flight.add_done_callback(lambda landed: self._land(key, landed))
        return flight

    def _land(self, key: Key, flight: asyncio.Future[Answer]) -> None:
        del self.flights[key]
        flight.exception()  # read here: every caller may have gone away
