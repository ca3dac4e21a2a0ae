"""What a scaler asks of the process that makes forecasts, and what that answers; both travel as JSON."""

from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.plan import Plan
from adapter.bounds.forecast.verdict import Verdict
from adapter.bounds.schedule.documents import ScheduleDocument
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import ForecastSettings
from adapter.model.autoscaling.hpa import decode_scalar, encode_scalar
from adapter.model.quantity import Quantity

STEP = 60
"""Seconds of a step. What Prometheus has for an instant is the demand of the step that ends then."""

MOST_VALUES = 25_000_000
"""How many values of histories the process keeps: 200 MB, 14 days of 1,240 metrics."""

MOST_VALUES_OF_ONE = 1_000_000
"""How many of these one autoscaler may have, with the day until the next verdict.

That is 14 days of 46 metrics, 35 days of 19.
"""


class HistoryQuery(msgspec.Struct, frozen=True):
    """The PromQL query for what all pods had together of a metric."""

    metric: str
    promql: str


class ForecastJob(msgspec.Struct, frozen=True):
    """A job for one autoscaler, `name`.

    `policy` is how it runs, as `fastpath simulate` names it. `start_ups` are the seconds that its last pods
    took to be Ready, and `request` is that of a pod, for targets of type Utilization. `now` is in seconds
    since 1970. `verdict` and `limits` are those of the last answer, and `judges` asks for a new verdict. With
    `with_this_hour` there is a plan of the hour of `now` too, and not of the next one alone. `schedules` are
    those of the autoscaler, which hold in the replay too.
    """

    name: str
    autoscaler: FastPathAutoscaler
    policy: str
    settings: ForecastSettings
    start_ups: tuple[int, ...]
    queries: tuple[HistoryQuery, ...]
    now: int
    request: Quantity | None = None
    verdict: Verdict | None = None
    limits: Limits | None = None
    judges: bool = True
    with_this_hour: bool = False
    schedules: tuple[ScheduleDocument, ...] = ()


NO_CARD = msgspec.Raw(b"null")


class ForecastAnswer(msgspec.Struct, frozen=True):
    """The answer to a job: a verdict, and the `ForecastCard` as JSON.

    If a candidate may act, there are plans, and `limits` are those of its minimums until the next verdict.
    `reason` and `problem` say why there is no verdict, as a word and as a sentence; "" otherwise.
    `values` is how many values of histories the process has in memory.
    """

    verdict: Verdict | None = None
    limits: Limits | None = None
    plans: tuple[Plan, ...] = ()
    card: msgspec.Raw = NO_CARD
    reason: str = ""
    problem: str = ""
    values: int = 0


NOT_INSTALLED, NO_QUERY, UNSUPPORTED = "NotInstalled", "NoQuery", "Unsupported"
UNREADABLE, NO_VALUES, NO_ROOM = "HistoryUnreadable", "NoValues", "NoRoom"
WORKER_FAILED, TOO_MUCH_WORK = "WorkerFailed", "TooMuchWork"
"""The reasons of an answer without a verdict."""

READ = frozenset({UNREADABLE, NO_VALUES})
"""Those of jobs that ended while or after the history was read."""

COMPUTED = frozenset({WORKER_FAILED, TOO_MUCH_WORK})
"""Those of jobs that may have taken as much time as a verdict."""


def to_plain(value: Any) -> Any:
    """Return what JSON has in place of a value: the ``enc_hook`` of jobs."""
    return str(value) if isinstance(value, ZoneInfo) else encode_scalar(value)


def from_plain(wanted: type, written: Any) -> Any:
    """Return a value from its JSON: the ``dec_hook`` of jobs."""
    return ZoneInfo(written) if wanted is ZoneInfo else decode_scalar(wanted, written)
