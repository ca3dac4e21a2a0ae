"""The form in which an owner stores a verdict for the next one, with its plans and its account.

A stored verdict may be of another spec, of another day or clock, or made up. So it has a fingerprint of what
it is about, and whatever the arithmetic of minimums relies on is checked. A verdict that is refused costs a
new one: that is some seconds of CPU, and a time without a floor.

A text is JSON, compressed, in base64. Numbers have five digits.
"""

import base64
import hashlib
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from adapter.bounds.forecast import minimum
from adapter.bounds.forecast.job import STEP, HistoryQuery, to_plain
from adapter.bounds.forecast.minimum import HOURS, RECENT, Account, Limits
from adapter.bounds.forecast.plan import HOUR, SPANS, Plan
from adapter.bounds.forecast.verdict import Verdict
from adapter.model import local_time
from adapter.model.timestamps import SECOND, write_instant

JUDGE: Final = 3
"""The rules of verdicts by number: raise it with a change after which a verdict of before must not act."""

MOST_TEXT: Final = 16_384
"""Limit on the characters of a stored verdict; one has 1,000 to 2,000."""

MOST_JSON: Final = 65_536
"""Limit on the bytes of its JSON."""

MOST_AGE: Final = 24
"""Hours from the end of the judged days to the next verdict, at most."""

_LARGEST = 1e12
_LONGEST = 24 * HOUR // STEP
_DIGITS = 5
_WITHHELD = {"", minimum.BUDGET, minimum.COVERAGE, minimum.ABSENT, minimum.UNKNOWN}


class StoredHour(msgspec.Struct, frozen=True, array_like=True):
    """What a `Plan` says about its hour."""

    hour: int
    margin: float | None = None
    low: float | None = None
    offsets: tuple[float | None, ...] = ()
    weights: tuple[float, ...] = (0.0,) * len(SPANS)


class StoredVerdict(msgspec.Struct, frozen=True):
    """A verdict that was made at `judged`, in seconds since 1970.

    If a candidate may act there are limits, and the plans of the hour in which it was stored and of the next
    one, as far as they were made.
    """

    fingerprint: str
    judged: int
    verdict: Verdict
    limits: Limits | None = None
    hours: tuple[StoredHour, ...] = ()
    account: Account | None = None

    def plans(self, now: int) -> Iterator[Plan]:
        """Yield the plans that are not over at `now`, in seconds since 1970."""
        for hour in self.hours:
            if self.limits is not None and hour.hour >= now // HOUR:
                bounds = hour.offsets, hour.weights, hour.margin, hour.low
                yield Plan(hour.hour, STEP, self.verdict.chosen, self.limits, *bounds)

    def is_about(self, fingerprint: str, now: int) -> bool:
        """Tell whether the verdict may still act at `now` on what has this fingerprint."""
        return self.fingerprint == fingerprint and now // HOUR - self.verdict.at // HOUR <= MOST_AGE


def stored_hours(plans: Sequence[Plan]) -> tuple[StoredHour, ...]:
    return tuple(StoredHour(plan.hour, plan.margin, plan.low, plan.offsets, plan.weights) for plan in plans)


def build_fingerprint(basis: object, queries: Sequence[HistoryQuery]) -> str:
    """Return what tells a verdict on one spec, with its settings and queries, from those on others."""
    content = msgspec.json.encode((JUDGE, basis, queries), enc_hook=to_plain, order="deterministic")
    return base64.b64encode(hashlib.sha256(content).digest()[:15]).decode()


def encode_verdict(stored: StoredVerdict) -> str:
    content = msgspec.json.encode(_rounded(msgspec.to_builtins(stored)))
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_rounded, value)]
    if isinstance(value, float):
        short = float(f"{value:.{_DIGITS}g}")
        return int(short) if short.is_integer() else short
    return value


def decode_verdict(text: str, now: int) -> StoredVerdict:
    """Return the verdict of a text; ValueError with a sentence for any other text, and for one of the future.

    `now` is in seconds since 1970.
    """
    if len(text) > MOST_TEXT:
        raise ValueError(f"not a verdict: {len(text):,} characters, expected at most {MOST_TEXT:,}")
    try:
        written = msgspec.json.decode(_inflated(text))
        stored = msgspec.convert(written, StoredVerdict) if _is_bounded(written) else None
    except (ValueError, RecursionError, zlib.error) as error:  # those of msgspec and base64 are ValueErrors
        raise ValueError(f"not a verdict: {error}") from error
    fault = "a number is too large" if stored is None else next(_faults(stored), "")
    if stored is None or fault:
        raise ValueError(f"not a verdict: {fault}")
    if _latest(stored) > now:
        at = write_instant(now * SECOND)
        raise ValueError(f"not a verdict of before {at}: the clock of this owner or of the last one is wrong")
    return stored


def _inflated(text: str) -> bytes:
    inflating = zlib.decompressobj()
    content = inflating.decompress(base64.b64decode(text, validate=True), MOST_JSON)
    if not inflating.eof:
        raise ValueError(f"expected a whole text of at most {MOST_JSON:,} bytes")
    return content


def _is_bounded(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_bounded, value.values()))
    if isinstance(value, list):
        return all(map(_is_bounded, value))
    return not isinstance(value, int | float) or abs(value) <= _LARGEST


def _faults(stored: StoredVerdict) -> Iterator[str]:
    """Yield why the arithmetic of minimums cannot rely on a verdict."""
    verdict, limits, account = stored.verdict, stored.limits, stored.account or Account()
    acts = verdict.acting is not None
    if verdict.missing or verdict.none is None or acts != bool(verdict.chosen):
        yield "its figures are missing"
    if (limits is not None) != acts or (limits is not None and not _are_possible(limits)):
        yield "its limits are impossible"
    if not _are_planned(stored.hours):
        yield "its plans are not those of an hour and the next one"
    if any(len(hour.weights) != len(SPANS) for hour in stored.hours):
        yield "its plans have other weights"
    if account.withheld not in _WITHHELD or not 0 <= account.low <= RECENT or not _are_hours(account):
        yield "its account is impossible"


def _are_possible(limits: Limits) -> bool:
    spans = 1 <= limits.lead <= _LONGEST and 1 <= limits.hold <= _LONGEST
    shares = all(0 < share <= 1 for share in (limits.coverage, limits.max_extra, limits.ratio))
    ordered = 0 <= limits.least <= limits.most and 0 <= limits.low <= 1 <= limits.high
    return spans and shares and ordered and local_time.read_zone(limits.zone) is not None


def _are_planned(hours: Sequence[StoredHour]) -> bool:
    numbers = [hour.hour for hour in hours]
    lengths = {len(hour.offsets) for hour in hours}
    return len(numbers) <= 2 and sorted(set(numbers)) == numbers and lengths <= {0, HOUR // STEP}


def _are_hours(account: Account) -> bool:
    numbers = [hour.number for hour in account.hours]
    is_row = all(before < after for before, after in itertools.pairwise(numbers))
    sums = ((hour.extra, hour.pods, hour.least or 0.0, hour.covered) for hour in account.hours)
    return (
        is_row
        and len(numbers) <= HOURS + 1
        and min(itertools.chain.from_iterable(sums), default=0) >= 0
        and all(hour.covered <= hour.judged <= HOUR // STEP for hour in account.hours)
    )


def _latest(stored: StoredVerdict) -> int:
    """Return the begin of the last hour that a verdict knows, in seconds since 1970."""
    account = stored.account or Account()
    hours = [*(hour.hour - 1 for hour in stored.hours), *(hour.number for hour in account.hours)]
    return max([stored.verdict.at, *(hour * HOUR for hour in hours)])
