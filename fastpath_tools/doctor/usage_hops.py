"""What the usage that pods expose themselves changes in the hops of CPU and memory.

Pure: facts in, hops out. Where it counts, a raise waits for a scrape and not for the metrics API. Where it
does not, or no rule scrapes it, the hop says why, and what it would save.
"""

from collections.abc import Iterator

from adapter.config.scrape_keys import Access, ScrapeConfig
from fastpath_tools.doctor.hops import Hop, Improvement, State, evenly, seconds
from fastpath_tools.live.facts import Unread, UsageFacts

_DEFAULT = ScrapeConfig(Access(""))
"""How a rule that names only a port scrapes."""

NOT_COMPARED = "NotCompared"
"""The reason of the condition until enough comparisons were made."""


def direct_hops(usage: UsageFacts) -> Iterator[Hop]:
    """Yield the hops of a usage that counts."""
    scraped = usage.scraped or _DEFAULT
    interval = scraped.access.interval
    text = f"Fastpath scrapes the pods every {seconds(interval)} ({usage.rule}) and raises by that"
    yield Hop("scrape", State.OK, text, evenly(interval))
    text = f"rates over {seconds(scraped.window)}" if usage.is_rate else "the latest sample"
    yield Hop("window", State.OK, text, evenly(_window(usage)))


def _window(usage: UsageFacts) -> float:
    return (usage.scraped or _DEFAULT).window if usage.is_rate else 0.0


def describe(usage: UsageFacts) -> tuple[State, str]:
    """Return why the usage that pods expose does not count, and how bad that is."""
    if usage.scraped is not None:
        verdict = usage.verdict
        if verdict.counts is None:
            text = f"whether the pods' own usage counts ({usage.rule}) is not known: {verdict.why}"
            return State.UNKNOWN, text
        if verdict.counts:
            return State.OK, f"the pods' own usage counts ({usage.rule})"
        state = State.OK if verdict.reason == NOT_COMPARED else State.WARNING
        return state, f"the pods' own usage does not count: {verdict.why}"
    if isinstance(usage.port, Unread):
        return State.OK, f"whether the pods expose {usage.series} is not known: {usage.port.why}"
    if usage.port is None:
        return State.OK, f"the pods were not seen to expose {usage.series}"
    return State.OK, f"the pods expose {usage.series} at port {usage.port.port}"


def improvement(usage: UsageFacts, resource: str, took: float, tick: float, boost: str) -> Improvement | None:
    """Return what to change so that the usage that pods expose counts.

    `took` are the seconds until now, with the decision. `tick` is how often Fastpath decides, and `boost` how
    to boost the autoscaler, "" if it needs no boost.
    """
    scraped = usage.scraped or _DEFAULT
    saves = took - (scraped.access.interval + _window(usage) + tick) / 2
    if saves <= 0:
        return None
    if usage.scraped is not None:
        if boost:
            return Improvement(f"boost it: {boost}", saves)
        if usage.verdict.counts is False and usage.verdict.reason != NOT_COMPARED:
            return Improvement(
                f"correct port, container or query in {usage.rule}, or what the pods expose", saves
            )
        return None
    if usage.port is None or isinstance(usage.port, Unread):
        return None
    path = "" if usage.port.path == "/metrics" else f", path: {usage.port.path}"
    rule = (
        f"have Fastpath scrape the pods: resourceRules.{resource}.scrape: {{port: {usage.port.port}{path}}}"
    )
    return Improvement(f"{rule}, and boost it: {boost}" if boost else rule, saves)
