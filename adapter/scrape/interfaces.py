"""What direct scrapes ask of their surroundings, and the values that they answer with."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from adapter.rules.registry import Registry
from adapter.scrape.bodies import Buffer
from adapter.scrape.http import Body, Endpoint

Finished = Callable[[str, str], None]
"""Told of a finished scrape, good or bad: namespace of the pod, metric that it may have changed."""


class ScrapedPod(Protocol):
    """What has to be known of a pod to scrape it. `ports` are its named container ports; `ip` is "" while it has none."""

    @property
    def name(self) -> str:
        """Return what it is called."""
        ...

    @property
    def phase(self) -> str:
        """Return its phase; only Running counts."""
        ...

    @property
    def deleting(self) -> bool:
        """Return whether it is on its way out."""
        ...

    @property
    def ip(self) -> str:
        """Return its address."""
        ...

    @property
    def host_network(self) -> bool:
        """Return whether it uses its node's network."""
        ...

    @property
    def ports(self) -> Mapping[str, int]:
        """Return its ports by name."""
        ...


class Reader(Protocol):
    """Reads a pod's endpoint; met by `scrape.http.Scraper`."""

    async def fetch(self, endpoint: Endpoint, buffer: Buffer) -> Body:
        """Return what the pod shows, whose bytes are charged to `buffer`; ScrapeError."""
        ...


class Registered(Protocol):
    """Knows which rule answers a metric; met by the relister."""

    @property
    def registry(self) -> Registry:
        """Return the snapshot in force."""
        ...


class ScrapedValue(NamedTuple):
    """A pod's value, its time (epoch seconds), and whether it is overdue: good to grow by, not to shrink by."""

    value: float
    time: float
    overdue: bool


class ScrapedAnswer(NamedTuple):
    """What scrapes say of some pods of one namespace, by name.

    `absent` are the pods that are scraped and have no value now: only a sample later than the time given (epoch seconds) says more of
    them than the scrapes do; of these, `unseen` are the pods whose last scrape failed, is late or is not worked out yet. Pods in neither
    are not scraped.
    """

    values: Mapping[str, ScrapedValue]
    absent: Mapping[str, float]
    unseen: Collection[str] = frozenset()
