"""Stores the verdicts of a slice for its next owner, so that it need not judge all autoscalers again.

An entry is a `StoredVerdict`. Where not all have room, those come first whose forecast gives a floor, then
those that would in mode Floor, then those without a candidate that may act. Among each of these the
namespaces take turns. A verdict that is not stored is made again.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from adapter.autoscaler.forecasts.forecast import AutoscalerForecast
from adapter.autoscaler.term_store import StoredKind, TermEntry, TermStore
from adapter.bounds.forecast.stored import StoredVerdict, decode_verdict, encode_verdict
from adapter.kubernetes.write.writer import Writer
from adapter.model.autoscaling.forecast import FLOOR
from adapter.telemetry.problems import ProblemLog

KIND = StoredKind(
    name="fastpath-forecasts",
    label="fastpath.io/forecasts",
    fault="forecasts",
    unread="the verdicts of the previous owner cannot be read; those of this one are not stored",
    unwritten="verdicts on forecasts cannot be stored; the next owner makes them again",
    unexpected="unexpected error about the verdict on a forecast",
    period=300.0,
    kept=2,
    in_a_row=6,
)

RETRY = 10.0
"""Seconds between two attempts to read."""

Forecasts = Collection[AutoscalerForecast]


class VerdictStore(TermStore[Forecasts]):
    def __init__(self, writer: Writer, namespace: str, number: int, problems: ProblemLog) -> None:
        super().__init__(writer, namespace, number, problems, KIND)
        self.has_begun = False
        self.unclaimed: dict[str, str] = {}
        """The inherited entries that no autoscaler has taken, by its uid."""

    async def begin(self, forecasts: Forecasts) -> None:
        """Read what is stored, unless that was tried before."""
        if not self.has_begun:
            self.has_begun = True
            await self.step(forecasts)

    @property
    def pause(self) -> float:
        """The seconds to the next `step`."""
        return RETRY if self._stored is None else KIND.period

    async def inherit(self, forecasts: Forecasts, texts: Mapping[str, str]) -> None:  # noqa: ARG002 - they take theirs
        self.unclaimed = dict(texts)

    def is_unclaimed(self, forecasts: Forecasts, uid: str) -> bool:  # noqa: ARG002 - of the signature
        return uid in self.unclaimed

    def take(self, uid: str, now: int) -> StoredVerdict | None:
        """Return the unclaimed verdict on an autoscaler, and forget it; None if it cannot be used."""
        try:
            return decode_verdict(self.unclaimed.pop(uid), now)
        except ValueError as error:
            self.report(uid, error)
            return None

    async def encode(self, forecasts: Forecasts) -> dict[str, str]:
        if self._saves > KIND.kept:
            self.unclaimed.clear()
        return await self.encode_each(
            TermEntry(forecast.state.object.metadata.uid, forecast.version, partial(_encode, forecast))
            for forecast in _in_order(forecasts)
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
