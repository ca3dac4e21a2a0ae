"""What is logged of checks, and whether a process is ready. The texts are in tests/server/transcripts."""

import logging

import pytest

from adapter.server.health import Check, Health


class Faulty:
    """A check whose state a test sets."""

    def __init__(self, fault: str | None) -> None:
        self.fault = fault

    def __call__(self) -> str | None:
        return self.fault


GOOD = Check("trust", lambda: None)
INFO = Check("prometheus", lambda: "refused", informational=True)


def test_reasons_are_logged_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    state = Faulty("not synced")
    other = Faulty(None)
    health = Health(readyz=[Check("caches", state), Check("other", other)])

    def logged() -> list[tuple[str, str]]:
        health.answer(["readyz"], "")
        # our extra
        found = [(record.message, record.facts.get("reason", "")) for record in caplog.records]  # type: ignore[attr-defined]
        caplog.clear()
        return found

    with caplog.at_level(logging.INFO, "adapter.server.health"):
        assert logged() == [("health check failed", "not synced")]
        assert logged() == [], "said once"
        health.answer(["readyz"], "exclude=caches")
        assert logged() == [], "a partial look changes nothing"
        state.fault = "watch forbidden"
        assert logged() == [("health check failed", "watch forbidden")]
        other.fault = "also"
        assert logged() == [("health check failed", "also")], "what was said is not said again"
        other.fault = state.fault = None
        assert sorted(logged()) == [("health check passed again", "")] * 2
        assert logged() == []


def test_whether_it_is_ready_is_what_readyz_says() -> None:
    check = Faulty(None)
    health = Health(readyz=[GOOD, INFO, Check("caches", check)])
    assert health.is_ready()
    check.fault = "not synced"
    assert not health.is_ready()
