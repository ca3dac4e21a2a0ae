"""A scraper without a budget, and the steps of a scrape, each run to its end at once."""

from collections.abc import Collection, Sequence
from typing import Any

from adapter.model import steps
from adapter.rules.matchers import Matcher
from adapter.rules.scrape import exposition
from adapter.rules.scrape.exposition import MAX_SAMPLES, Exposed
from adapter.rules.scrape.scraped_query import Answer, ScrapedQuery
from adapter.rules.scrape.series import PodSeries
from adapter.scrape.bodies import BodyBudget, BodyBuffer
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint, Scraper


class LoneScraper(Scraper):
    """Reads each body with a budget of its own, unless it is given one."""

    def __init__(self, *parts: Any, files: int = 256, **settings: Any) -> None:
        super().__init__(*parts, files=files, **settings)

    async def fetch(self, endpoint: ScrapeEndpoint, buffer: BodyBuffer | None = None) -> ScrapedBody:
        return await super().fetch(endpoint, buffer or BodyBudget().open(endpoint.namespace))


def parse(
    body: bytes, names: Collection[str], *, openmetrics: bool = False, limit: int = MAX_SAMPLES
) -> list[Exposed]:
    samples: list[Exposed] = []
    steps.run(exposition.read(body, names, samples, openmetrics=openmetrics, limit=limit))
    return samples


def record(series: PodSeries, samples: Sequence[Exposed], time: float, wall: float, keep: float) -> None:
    steps.run(series.record(samples, time, wall, keep))


def evaluate(
    query: ScrapedQuery,
    pod: PodSeries,
    series: str,
    name: tuple[str, str],
    selector: Sequence[Matcher],
    window: float,
) -> Answer:
    """Evaluate the query for a pod of this namespace and name."""
    return steps.run(query.evaluate([pod], series, selector, window, name))
