"""What the CPU that pods expose themselves changes in the hops of its metrics.

Pure: facts in, hops out. Where it counts, a raise waits for a scrape and not for the metrics API. Where it
does not, or no rule scrapes it, the hop says why, and what it would save.
"""

from collections.abc import Iterator

from adapter.config.rules_config import Access, ScrapeConfig
from fastpath_tools.doctor.hops import Hop, Improvement, State, evenly, seconds
from fastpath_tools.live import usages
from fastpath_tools.live.facts import MetricsPort, Unread, UsageFacts

_DEFAULT = ScrapeConfig(Access(""))
"""How a rule that names only a port scrapes."""

_QUIET = frozenset({"NotCompared", "NotExposed"})
"""Reasons for which own usage does not count that are no fault of what is exposed."""


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
    """Return whether the pods' own usage counts or could, and how bad that is."""
    verdict, port = usage.verdict, usage.port
    if verdict.counts:
        return State.OK, f"the pods' own usage counts ({usage.rule})"
    if verdict.counts is False:
        state = State.OK if verdict.reason in _QUIET else State.WARNING
        return state, f"the pods' own usage does not count: {verdict.why}"
    if verdict.why:
        return State.UNKNOWN, f"whether the pods' own usage counts ({usage.rule}) is not known: {verdict.why}"
    if isinstance(port, Unread):
        return State.OK, f"whether the pods expose {usages.COUNTER} is not known: {port.why}"
    if port is None:
        return State.OK, f"the pods were not seen to expose {usages.COUNTER}"
    return State.OK, f"the pods expose {usages.COUNTER} at port {port.port}"


def improvement(usage: UsageFacts, took: float, tick: float, boost: str) -> Improvement | None:
    """Return what to change so that the pods' own usage counts.

    `took` are the seconds until now, with the decision. `tick` is how often Fastpath decides, and `boost` how
    to boost the autoscaler, "" if it needs no boost.
    """
    verdict, port, scraped = usage.verdict, usage.port, usage.scraped or _DEFAULT
    saves = took - (scraped.access.interval + _window(usage) + tick) / 2
    if saves <= 0:
        return None
    if verdict.counts is False and verdict.reason != "NotCompared":
        text = f"correct port, container or query in {usage.rule}, or what the pods expose"
        return Improvement(text, saves)
    steps = [f"boost it: {boost}"] if boost else []
    if isinstance(port, MetricsPort) and not usage.rule:
        path = "" if port.path == "/metrics" else f", path: {port.path}"
        rule = f"resourceRules.cpu.scrape: {{port: {port.port}{path}}}"
        steps.insert(0, f"have Fastpath scrape the pods: {rule}")
    is_exposed = verdict.counts or isinstance(port, MetricsPort)
    return Improvement(", and ".join(steps), saves) if is_exposed and steps else None
