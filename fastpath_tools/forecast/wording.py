"""What a card says in words: the verdict, the figures of each candidate, and what withholds a floor."""

from collections.abc import Iterator, Sequence

from adapter.bounds.forecast import minimum
from adapter.bounds.forecast.verdict import (
    JUDGED_DAYS,
    RECENT_DAYS,
    CandidateFigures,
    ForecastCard,
    ReplayFigures,
)
from adapter.model import timestamps, visible
from adapter.model.autoscaling.forecast import FLOOR
from adapter.model.timestamps import SECOND
from fastpath_tools import tables

HEAD = (
    *("candidate", "coverage", "reached", "shortage", "pods"),
    *(f"{RECENT_DAYS} d shortage", f"{RECENT_DAYS} d pods", "withheld"),
)
"""The columns of `rows`, without that of the verdict."""


def verdict_of(card: ForecastCard) -> str:
    """Return the verdict as one sentence, without the final stop."""
    verdict = card.verdict
    if verdict.missing:
        return f"no verdict yet: {verdict.missing}"
    none, acting, best = verdict.none, verdict.acting, verdict.find(card.shown)
    if none is None or best is None:
        return "no verdict yet"
    if acting is not None:
        does = "acts" if card.mode == FLOOR else "would act"
        return f"{acting.name} {does}: {_compared(acting.whole, none.whole)}"
    if not none.whole.shortage:
        return "no forecast acts: without one no pod is missing"
    return f"no forecast acts; the best is {best.name}: {best.refused}"


def _compared(figures: ReplayFigures, none: ReplayFigures) -> str:
    gain, extra = figures.gain_over(none), figures.extra_over(none)
    less, more = "less" if gain >= 0 else "more", "more" if extra >= 0 else "fewer"
    return f"{percent(abs(gain))} {less} shortage for {percent(abs(extra))} {more} pods"


def basis_of(card: ForecastCard, *, is_dated: bool = True) -> Iterator[str]:
    """Yield what the figures come from, as sentences; a load that is not dated has no times to show."""
    verdict = card.verdict
    if (none := verdict.none) is None:
        return
    end = f" up to {timestamps.write_instant(verdict.at * SECOND)}" if is_dated else ""
    ahead = tables.duration(verdict.lead)
    yield f"Decisions of the {JUDGED_DAYS} days{end}, made again; a floor looks {ahead} ahead."
    shortage, pods = none.whole.shortage, none.whole.pods
    yield f"Without a forecast: {shortage:,.0f} pod seconds are missing, and {pods:,.0f} run."


def rows(card: ForecastCard) -> list[list[str]]:
    """Return the figures of each candidate under HEAD, compared to no forecast."""
    none = card.verdict.none
    return [] if none is None else [_row(each, none) for each in card.verdict.candidates]


def _row(each: CandidateFigures, none: CandidateFigures) -> list[str]:
    row = [each.name, percent(each.wanted), "-" if each.reached is None else percent(each.reached)]
    for figures, without in ((each.whole, none.whole), (each.recent, none.recent)):
        gain = _change(-figures.gain_over(without)) if without.shortage else "-"
        row += [gain, _change(figures.extra_over(without))]
    return [*row, percent(each.withheld)]


def judged(card: ForecastCard) -> list[str]:
    """Return for each candidate whether it acts, and why not."""
    acts = "acts" if card.mode == FLOOR else "would act"
    return [
        acts if each.name == card.verdict.chosen else each.refused or "allowed, and not better"
        for each in card.verdict.candidates
    ]


def table(card: ForecastCard) -> list[str]:
    if not (found := rows(card)):
        return []
    lines = tables.text_table([list(HEAD), *found])
    return [f"{line}   {last}" for line, last in zip(lines, ["VERDICT", *judged(card)], strict=True)]


def holds(card: ForecastCard, floor: int, withheld: str) -> str:
    """Return what holds now of a running scaler, as a sentence without the final stop."""
    if withheld:
        return f"now there is no floor: {_reason(card, withheld)}"
    if not floor:
        return "now there is no floor"
    return f"now the floor is {floor}" if card.mode == FLOOR else f"now the floor would be {floor}"


def _reason(card: ForecastCard, withheld: str) -> str:
    reasons = {
        minimum.BUDGET: f"those of the last day would cost more than maxExtra, {percent(card.max_extra)}",
        minimum.COVERAGE: "in the last day the demand was above its upper bound too often",
        minimum.ABSENT: "the demand is lower than on the days that the forecast is made from",
        minimum.UNKNOWN: "the demand is not known",
    }
    return f"{reasons[withheld]} ({withheld})" if withheld in reasons else withheld


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _change(share: float) -> str:
    text = f"{100 * share:+.0f} %"
    return "0 %" if text in {"+0 %", "-0 %"} else text


def to_text(
    name: str, card: ForecastCard, drawn: Sequence[str], notes: Sequence[str] = (), *, is_dated: bool = True
) -> str:
    """Return the card for a terminal; `drawn` is the picture of it, and `notes` are sentences below."""
    lines = [f"{name}: {verdict_of(card)}", *basis_of(card, is_dated=is_dated)]
    blocks = [table(card), drawn, [*notes, *_advice(card)]]
    for block in blocks:
        lines += ["", *block] if block else []
    return visible.join(lines)


def _advice(card: ForecastCard) -> Iterator[str]:
    if card.verdict.chosen and card.mode != FLOOR:
        yield f"mode {card.mode}: no floor is given to the decisions; with mode Floor it is"
