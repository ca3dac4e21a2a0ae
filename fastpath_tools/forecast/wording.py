"""What a card says in words: the verdict, the figures of each candidate, and what withholds a floor."""

from collections.abc import Iterator, Sequence

from adapter.bounds.forecast import minimum
from adapter.bounds.forecast.verdict import (
    JUDGED_DAYS,
    RECENT_DAYS,
    CandidateFigures,
    ForecastCard,
    describe_alternative,
    percent,
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
        gain, extra = acting.whole.gain_over(none.whole), acting.whole.extra_over(none.whole)
        less, more = "less" if gain >= 0 else "more", "more" if extra >= 0 else "fewer"
        cost = f"{percent(abs(gain))} {less} shortage for {percent(abs(extra))} {more} pods"
        return f"{acting.name} {does}: {cost}"
    if not none.whole.shortage:
        return "no forecast acts: without one no pod is missing"
    return f"no forecast acts; the best is {best.name}: {best.refused}"


def basis_of(card: ForecastCard, *, is_dated: bool = True) -> Iterator[str]:
    """Yield what the figures come from, as sentences; a load that is not dated has no times to show."""
    verdict = card.verdict
    if (none := verdict.none) is None:
        return
    end = f" up to {timestamps.write_instant(verdict.at * SECOND)}" if is_dated else ""
    ahead = tables.duration(verdict.lead)
    yield f"Decisions of the {JUDGED_DAYS} days{end}, made again; a floor looks {ahead} ahead."
    whole = none.whole
    tolerated = f", {whole.tolerated:,.0f} more within the tolerance" if whole.tolerated else ""
    yield (
        f"Without a forecast: {whole.shortage:,.0f} pod seconds are missing{tolerated}, "
        f"and {whole.pods:,.0f} run."
    )


def rows(card: ForecastCard) -> list[list[str]]:
    """Return the figures of each candidate under HEAD, compared to no forecast."""
    none = card.verdict.none
    return [] if none is None else [_row(candidate, none) for candidate in card.verdict.candidates]


def _row(candidate: CandidateFigures, none: CandidateFigures) -> list[str]:
    reached = "-" if candidate.reached is None else percent(candidate.reached)
    row = [candidate.name, percent(candidate.wanted), reached]
    for figures, without in ((candidate.whole, none.whole), (candidate.recent, none.recent)):
        gain = _change(-figures.gain_over(without)) if without.shortage else "-"
        row += [gain, _change(figures.extra_over(without))]
    return [*row, percent(candidate.withheld)]


def judged(card: ForecastCard) -> list[str]:
    """Return for each candidate whether it acts, and why not; of those that may, what else their pods buy."""
    return [_judged(candidate, card) for candidate in card.verdict.candidates]


def _judged(candidate: CandidateFigures, card: ForecastCard) -> str:
    if candidate.refused:
        return candidate.refused
    acts = "acts" if card.mode == FLOOR else "would act"
    outcome = acts if candidate.name == card.verdict.chosen else "allowed, and not better"
    none = card.verdict.none
    other = "" if none is None else describe_alternative(candidate, none)
    return f"{outcome}; {other}" if other else outcome


def table(card: ForecastCard) -> list[str]:
    if not (figures := rows(card)):
        return []
    lines = tables.text_table([list(HEAD), *figures])
    return [f"{line}   {last}" for line, last in zip(lines, ["VERDICT", *judged(card)], strict=True)]


def holds(card: ForecastCard, floor: int, withheld: str) -> str:
    """Return what holds now of a running scaler, as a sentence without the final stop."""
    reasons = {
        minimum.BUDGET: f"those of the last day would cost more than maxExtra, {percent(card.max_extra)}",
        minimum.COVERAGE: "in the last day the demand was above its upper bound too often",
        minimum.ABSENT: "the demand is lower than on the days that the forecast is made from",
        minimum.UNKNOWN: "the demand is not known",
    }
    if withheld:
        reason = f"{reasons[withheld]} ({withheld})" if withheld in reasons else withheld
        return f"now there is no floor: {reason}"
    if not floor:
        return "now there is no floor"
    return f"now the floor is {floor}" if card.mode == FLOOR else f"now the floor would be {floor}"


def _change(share: float) -> str:
    text = f"{100 * share:+.0f} %"
    return "0 %" if text in {"+0 %", "-0 %"} else text


def to_text(
    name: str, card: ForecastCard, drawn: Sequence[str], notes: Sequence[str] = (), *, is_dated: bool = True
) -> str:
    """Return the card for a terminal; `drawn` is the picture of it, and `notes` are sentences below."""
    lines = [f"{name}: {verdict_of(card)}", *basis_of(card, is_dated=is_dated)]
    advice = f"mode {card.mode}: no floor is given to the decisions; with mode Floor it is"
    is_advised = bool(card.verdict.chosen) and card.mode != FLOOR
    for block in (table(card), drawn, [*notes, *([advice] if is_advised else [])]):
        lines += ["", *block] if block else []
    return visible.join(lines)
