"""What the tests of scraped pods share: rules, pods, and how these are scraped and read."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapter.model.metrics import SeriesInfo
from adapter.model.objects.label_selectors import parse_selector
from adapter.scrape.readings import ScrapedAnswer
from adapter.scrape.targets import ScrapeTarget
from tests.support.world import RulesWorld, read_scraped, scraped_pod, world

RULE = """
- seriesQuery: {series}
  resources: {{template: <<.Resource>>}}
  scrape: {{port: metrics, {more}}}
  metricsQuery: {query}
"""
GAUGE = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
RATE = 'sum(rate(<<.Series>>{code!="500",<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
LABELS = frozenset({"namespace", "pod"})
LISTS = {"gauges": (SeriesInfo("depth", LABELS, 3),), "counters": (SeriesInfo("hits", LABELS, 3),)}
IDS = itertools.count()


def rules(more: str = "") -> str:
    """Return a rule for the gauge ``depth``, and one for the counter ``hits``."""
    gauges = RULE.format(series="gauges", query=GAUGE, more=more)
    return f"rules:{gauges}{RULE.format(series='counters', query=RATE, more=more)}"


@asynccontextmanager
async def scraping(text: str = "", **settings: Any) -> AsyncIterator[RulesWorld]:
    async with world(text or rules(), lists=LISTS, **settings) as here:
        yield here


def target(here: RulesWorld, namespace: str, name: str) -> ScrapeTarget:
    """Return what is kept of a pod."""
    (found,) = (each for each in here.targets(name) if each.group.namespace == namespace)
    return found


async def scrape_at_once(here: RulesWorld, *names: str) -> None:
    """Scrape all pods that are wanted, or those of some names, at a time."""
    await asyncio.gather(*map(here.scraped.work.scrape, here.targets(*names)))


def read(
    here: RulesWorld, metric: str = "depth", *names: str, namespace: str = "shop", selector: str = ""
) -> ScrapedAnswer:
    found = read_scraped(here.scraped, namespace, metric, names or ("a", "b"), parse_selector(selector))
    assert found is not None
    return found


def reason(here: RulesWorld, namespace: str, name: str, metric: str = "depth") -> str:
    """Return why a pod has no value."""
    entry = here.scraped.entry_of(metric)
    assert entry is not None
    return here.scraped.reason_of(entry, namespace, name)


def churning(name: str, count: int, labels: int = 1) -> str:
    """Return series whose labels are other ones in each body."""
    lines = []
    for _ in range(count):
        number = next(IDS)
        shown = ",".join(f'id{label}="{number}"' for label in range(labels))
        lines.append(f"{name}{{{shown}}} 1\n")
    return "".join(lines)


def queues(count: int) -> str:
    """Return many series of the gauge."""
    return "".join(f'depth{{q="{number}"}} 1\n' for number in range(count))


A, B = scraped_pod("a", "10.0.0.1"), scraped_pod("b", "10.0.0.2")
