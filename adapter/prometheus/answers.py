"""Cached answers of Prometheus and the futures of queries in flight, by key.

The stores are bounded by memory, keys included, because a key may be much larger than its answer. An entry
expires when no caller may use it any more.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult, Sample
from adapter.rules.query_plan import Objects
from adapter.telemetry.metrics import ExpiringCache, Monitoring

KEPT_BYTES = 128 * 1024 * 1024
"""Bound on the cached answers about objects. The size of an answer is estimated from above."""

KEPT_TEXTS_BYTES = KEPT_SWEEPS_BYTES = 64 * 1024 * 1024
"""Bounds on the cached answers to queries of external metrics, and to sweeps."""

INFLIGHT_BYTES = 2048
"""Estimated bytes of a request in flight, beside its key."""

_OBJECT_BYTES = 150
"""Estimated bytes of an object in an answer, beside its samples."""

_ANSWER_BYTES = 1024
_SAMPLE_BYTES = 350
_LABEL_BYTES = 60
_WEIGHED = 3  # samples of an answer that are measured: they are much alike

# A refresh starts in the last tenth of the TTL, at most a quarter of a second before its end: time enough for
# a query. A larger window would refresh entries that are read only once per TTL.
_AHEAD, _MOST_AHEAD = 0.1, 0.25


class Freshness(NamedTuple):
    """How old an answer may be; seconds.

    Younger than `ttl`, it is a hit. During the last `ahead` seconds of `ttl` a hit also starts a refresh
    (stale-while-revalidate). When Prometheus fails, the last answer is used while it is younger than
    `max_age`. With `repeats` a query prefetches after a pause too: recent requests are sure to be repeated.
    """

    ttl: float
    max_age: float
    ahead: float = 0.0
    repeats: bool = False

    def lifetime(self, took: float) -> float:
        """Return for how many seconds from the sending of its query an answer is a hit that took `took`.

        An answer that is slower than its TTL would be stale on arrival, and Prometheus would be queried
        without a pause. One that took over half of its TTL is used for twice as long, within `max_age`.
        """
        return max(self.ttl, min(2 * took, self.max_age)) if self.ttl else 0.0

    def left(self, kept: "StoredAnswer[Any]", now: float) -> float:
        """Return for how many seconds an answer is still a hit."""
        answer: TextAnswer | ObjectAnswer | SweepAnswer = kept.answer
        return answer.asked + self.lifetime(kept.took) - now

    @property
    def longest(self) -> float:
        """For how many seconds from the sending of its query an answer is of any use."""
        return max(self.ttl, self.max_age)

    @property
    def refresh_after(self) -> float:
        """The age in seconds from which a hit starts a refresh."""
        return self.ttl - self.ahead


def refresh_ahead(ttl: float, max_age: float) -> Freshness:
    """Return a freshness whose answers are refreshed shortly before `ttl` ends."""
    return Freshness(ttl, max_age, min(ttl * _AHEAD, _MOST_AHEAD))


class TextQuery(NamedTuple):
    """A query by its text. `accepts_warnings`: an answer with warnings counts as complete."""

    promql: str
    accepts_warnings: bool = False


class TextAnswer(NamedTuple):
    """The answer to a query by its text. `asked` is when the query was sent (monotonic seconds).

    `failure` is set on an older answer that replaces a failed query, `partial` on one with a warning, which
    may lack data and is not cached.
    """

    result: QueryResult
    asked: float
    failure: PrometheusError | None = None
    partial: PrometheusError | None = None

    @property
    def size(self) -> int:
        """Estimated bytes."""
        return weigh_samples(self.result.samples)


class ObjectAnswer(NamedTuple):
    """The samples of the requested objects by name, in the order received; objects without one are absent.

    `asked`, `failure` and `partial` are as in `TextAnswer`. `scraped`: some are scraped, so newer samples may
    exist at any moment.
    """

    samples: Mapping[str, tuple[Sample, ...]]
    asked: float
    failure: PrometheusError | None = None
    scraped: bool = False
    partial: PrometheusError | None = None

    @property
    def size(self) -> int:
        """Estimated bytes."""
        if not self.samples:
            return 0
        first = next(iter(self.samples.values()))
        count = sum(map(len, self.samples.values()))
        return _OBJECT_BYTES * len(self.samples) + count * weigh_samples(first[:1])


class SweepAnswer(NamedTuple):
    """The samples of every object of a metric, by namespace ("" for cluster-scoped kinds) and name.

    `asked` and `partial` are as in `TextAnswer`.
    """

    samples: Mapping[str, Mapping[str, tuple[Sample, ...]]]
    asked: float
    partial: PrometheusError | None = None

    @property
    def size(self) -> int:
        """Estimated bytes."""
        return sum(ObjectAnswer(names, self.asked).size for names in self.samples.values())

    def select(self, objects: Objects) -> ObjectAnswer:
        samples = self.samples.get(objects.namespace or "", {})
        selected = {name: samples[name] for name in objects.names if name in samples}
        return ObjectAnswer(selected, self.asked, partial=self.partial)


def weigh_samples(samples: Sequence[Sample]) -> int:
    """Return the estimated bytes of samples of one answer."""
    if not samples:
        return 0
    measured = samples if len(samples) <= _WEIGHED else (samples[0], samples[len(samples) // 2], samples[-1])
    text = sum(_LABEL_BYTES + len(value) for sample in measured for value in sample.labels.values())
    return len(samples) * (_SAMPLE_BYTES + text // len(measured))


KeyT = TypeVar("KeyT", bound=Hashable)
AnswerT = TypeVar("AnswerT", TextAnswer, ObjectAnswer, SweepAnswer)


class StoredAnswer(NamedTuple, Generic[AnswerT]):
    """A cached answer, its estimated bytes, and how many seconds its query took."""

    answer: AnswerT
    weight: int
    took: float


class AnswerStore(Generic[KeyT, AnswerT]):
    """Cached answers and requests in flight of one type."""

    def __init__(
        self, name: str, clock: Clock, monitoring: Monitoring, weigh: Callable[[KeyT], int], room: int
    ) -> None:
        """`name` is the label in the self-metrics, `weigh` the bytes of a key, `room` the bytes of all."""
        self.inflight: dict[KeyT, asyncio.Future[AnswerT]] = {}
        self.inflight_bytes = 0
        self._weigh = weigh
        self._kept: ExpiringCache[KeyT, StoredAnswer[AnswerT]] = ExpiringCache(
            name, monitoring, room, lambda kept: kept[0].weight, clock.monotonic
        )

    def find(self, key: KeyT) -> StoredAnswer[AnswerT] | None:
        """Return the last answer, None once it has expired."""
        try:
            return self._kept[key][0]  # get() costs twice as much, and most lookups are hits
        except KeyError:
            return None

    def keep(self, key: KeyT, answer: AnswerT, seconds: float, took: float = 0.0) -> None:
        """Cache a complete answer that fits until `seconds` after its query was sent.

        It is cached for longer if the answer that it replaces would have expired later: a caller that accepts
        no old answer shortens no other caller's fallback. A key counts twice, because the cache remembers up
        to as many keys again of entries that were dropped or replaced.
        """
        if answer.partial is not None:
            return
        weight = _ANSWER_BYTES + answer.size + 2 * self._weigh(key)
        if weight <= self._kept.maxsize:
            _, end = self._kept.get(key) or (None, -math.inf)
            self._kept[key] = (StoredAnswer(answer, weight, took), max(answer.asked + seconds, end))

    def open(self, key: KeyT) -> asyncio.Future[AnswerT]:
        """Return a new future, which `inflight` holds until it is done; drop expired answers."""
        self._kept.expire()
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        weight = INFLIGHT_BYTES + self._weigh(key)
        self.inflight[key] = future
        self.inflight_bytes += weight
        future.add_done_callback(lambda done: self._close(key, weight, done))
        return future

    def expire(self) -> None:
        self._kept.expire()

    def _close(self, key: KeyT, weight: int, future: asyncio.Future[AnswerT]) -> None:
        del self.inflight[key]
        self.inflight_bytes -= weight
        future.exception()  # mark it as retrieved: every caller may be gone
