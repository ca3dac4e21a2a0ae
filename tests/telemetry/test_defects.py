"""Unexpected errors are counted each time, logged once, and end where they are contained."""

import logging

import pytest

from adapter.telemetry import problems
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects


def count(monitoring: Monitoring) -> float | None:
    return monitoring.registry.get_sample_value("fastpath_scaler_unexpected_errors_total")


def test_what_is_contained_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    monitoring = Monitoring()
    kept = Defects(monitoring)
    for subject in ("shop/web", "shop/web", "shop/api"):
        for error in (ValueError("at noon"), ValueError("at one"), KeyError("at two")):
            with kept.contain("unexpected error about a status", subject):
                raise error

    assert count(monitoring) == 9
    assert [record.__dict__["facts"] for record in caplog.records] == [
        {"subject": subject} for subject in ("shop/web", "shop/web", "shop/api", "shop/api")
    ]
    assert {record.message for record in caplog.records} == {"unexpected error about a status"}
    assert all(record.exc_info for record in caplog.records)


def test_what_ends_a_task_is_not_contained() -> None:
    with pytest.raises(KeyboardInterrupt), Defects(Monitoring()).contain("unexpected"):
        raise KeyboardInterrupt


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    kept = Defects(Monitoring())
    with caplog.at_level(logging.CRITICAL):
        for number in range(problems.REMEMBERED):
            kept.note("unexpected", ValueError(), number)
    for subject in ("0", "1", "b", "1", "a" * 1000, "1", "2", "0"):
        kept.note("unexpected", ValueError(), subject)

    logged = [record.__dict__["facts"]["subject"] for record in caplog.records]
    assert logged == ["b", "a" * 200, "1", "2", "0"], "the first of them is forgotten for each new one"
