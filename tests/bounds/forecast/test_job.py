"""Jobs on their way to another process."""

from datetime import date
from zoneinfo import ZoneInfo

import msgspec

from adapter.bounds.forecast.job import ForecastJob, HistoryQuery, from_plain, to_plain
from adapter.bounds.schedule import documents
from adapter.model.autoscaling.forecast import ForecastSettings
from adapter.model.quantity import read as read_quantity
from tests.support.controller import fpa
from tests.support.schedules import schedule


def test_a_job_is_the_same_after_its_way() -> None:
    zone = ZoneInfo("Europe/Berlin")
    settings = ForecastSettings(zone=zone, holidays=frozenset({date(2026, 12, 25)}))
    query = HistoryQuery("queue", 'sum(queue{namespace="shop"})')
    windows = (
        {"name": "day", "from": "08:00", "to": "18:00", "minReplicas": 5},
        {"name": "night", "cron": "0 22 * * *", "for": "8h", "maxReplicas": 9},
    )
    planned = schedule(*windows)
    made = ForecastJob(
        "shop/web",
        fpa(),
        "fast",
        settings,
        (40, 42),
        (query,),
        7200,
        read_quantity("500m"),
        schedules=(planned.document,),
    )
    text = msgspec.json.encode(made, enc_hook=to_plain)
    read = msgspec.json.decode(text, type=ForecastJob, dec_hook=from_plain)
    assert read == made
    assert documents.check(read.schedules[0], "", []).schedule == planned.schedule
