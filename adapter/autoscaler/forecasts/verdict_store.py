"""Stores the verdicts of a slice for its next owner, so that it need not judge all autoscalers again.

An entry is a `StoredVerdict`. Where not all have room, those come first whose forecast gives a floor, then
those that would in mode Floor, then those without a candidate that may act. Among each of these the
namespaces take turns. A verdict that is not stored is made again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from adapter.autoscaler.controller.term_store import StoredKind, TermEntry, TermStore
from adapter.autoscaler.forecasts.forecast import AutoscalerForecast
from adapter.bounds.forecast.stored import StoredVerdict, decode_verdict, encode_verdict
from adapter.kubernetes.write.config_map import StoreSlot
from adapter.model.autoscaling.forecast import FLOOR

KIND = StoredKind(
    name="fastpath-forecasts",
    label="fastpath.io/forecasts",
    fault="forecasts",
    unread="the verdicts of the previous owner cannot be read; those of this one are not stored",
    unwritten="verdicts on forecasts cannot be stored; the next owner makes them again",
    unexpected="unexpected error about the verdict on a forecast",
    period=300.0,
    retry=10.0,
    kept=2,
    in_a_row=6,
)

Forecasts = Collection[AutoscalerForecast]


class VerdictStore(TermStore):
    """The verdicts of a slice. `find_forecasts` returns those of its autoscalers.

    They are read before the first job of the term, and `inherited` is called then.
    """

    def __init__(
        self, find_forecasts: Callable[[], Forecasts], inherited: Callable[[], None], slot: StoreSlot
    ) -> None:
        super().__init__(slot, KIND)
        self._find_forecasts = find_forecasts
        self._inherited = inherited
        self._has_begun = False
        self.unclaimed: dict[str, str] = {}
        """The inherited entries that no autoscaler has taken, by its uid."""

    async def begin(self) -> None:
        """Read what is stored, unless that was tried before."""
        if not self._has_begun:
            self._has_begun = True
            await self.write()
            self.submit()

    async def inherit(self, texts: Mapping[str, str]) -> None:
        self.unclaimed = dict(texts)
        self._inherited()

    def is_unclaimed(self, uid: str) -> bool:
        return uid in self.unclaimed

    def take(self, uid: str, now: int) -> StoredVerdict | None:
        """Return the unclaimed verdict on an autoscaler, and forget it; None if it cannot be used."""
        try:
            return decode_verdict(self.unclaimed.pop(uid), now)
        except ValueError as error:
            self.report(uid, error)
            return None

    async def encode(self) -> dict[str, str]:
        if self._saves > KIND.kept:
            self.unclaimed.clear()
        return await self.encode_each(
            TermEntry(forecast.state.spec.object.metadata.uid, forecast.version, partial(_encode, forecast))
            for forecast in _in_order(self._find_forecasts())
        )


def _encode(forecast: AutoscalerForecast) -> str:
    return encode_verdict(forecast.to_store())


def _in_order(forecasts: Forecasts) -> Iterator[AutoscalerForecast]:
    """Yield the forecasts with a verdict, those first that are to be stored where not all have room."""
    turns: Counter[tuple[int, str]] = Counter()
    places: list[tuple[int, int, str, str, AutoscalerForecast]] = []
    for forecast in sorted(forecasts, key=lambda forecast: forecast.state.key):
        if forecast.verdict is None or forecast.verdict.missing:
            continue
        key, acts = forecast.state.key, bool(forecast.verdict.chosen)
        rank = 0 if acts and forecast.settings.mode == FLOOR else 1 if acts else 2
        turn = turns[rank, key.namespace] = turns[rank, key.namespace] + 1
        places.append((rank, turn, key.namespace, str(key), forecast))
    for *_, forecast in sorted(places, key=lambda place: place[:4]):
        yield forecast
