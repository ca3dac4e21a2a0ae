"""Unexpected errors are counted each time, logged once, and end where they are contained."""

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


def test_what_is_remembered_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "REMEMBERED", 2)
    kept = Defects(Monitoring())
    for subject in ("a", "b", "b", "c", "a" * 1000, "a"):
        kept.note("unexpected", ValueError(), subject)

    assert [record.__dict__["facts"]["subject"] for record in caplog.records] == [
        "a",
        "b",
        "c",
        "a" * 200,
        "a",
    ]
