"""Health texts, word for word."""

import logging

import pytest

from adapter.server.health import Check, Health, HealthAnswer


class Faulty:
    """A check whose state a test sets."""

    def __init__(self, fault: str | None) -> None:
        self.fault = fault

    def __call__(self) -> str | None:
        return self.fault


def broken() -> str | None:
    raise RuntimeError("a bug")


GOOD, BAD = Check("trust", lambda: None), Check("caches", lambda: "pods not synced: http://secret")
INFO = Check("prometheus", lambda: "refused", informational=True)


def answer(checks: list[Check], target: str) -> HealthAnswer | None:
    path, _, query = target.partition("?")
    return Health(readyz=checks, livez=[GOOD]).answer(path.split("/"), query)


@pytest.mark.parametrize(
    ("checks", "target", "status", "text"),
    [
        ([GOOD], "readyz", 200, "ok"),
        ([GOOD], "readyz?verbose", 200, "[+]ping ok\n[+]trust ok\nreadyz check passed\n"),
        ([], "livez?verbose=", 200, "[+]ping ok\n[+]trust ok\nlivez check passed\n"),
        ([BAD], "healthz?verbose", 200, "[+]ping ok\n[+]trust ok\nhealthz check passed\n"),
        (
            [GOOD, BAD],
            "readyz",
            500,
            "[+]ping ok\n[+]trust ok\n[-]caches failed: reason withheld\nreadyz check failed\n",
        ),
        ([BAD], "readyz?exclude=caches", 200, "ok"),
        (
            [GOOD, BAD],
            "readyz?verbose&exclude=caches&exclude=trust",
            200,
            "[+]ping ok\n[+]trust excluded: ok\n[+]caches excluded: ok\nreadyz check passed\n",
        ),
        (
            [GOOD],
            "readyz?verbose&exclude=no&exclude=a%22",
            200,
            (
                "[+]ping ok\n[+]trust ok\nwarn: some health checks cannot be excluded: "
                'no matches for "a\\"","no"\nreadyz check passed\n'
            ),
        ),
        (
            [INFO],
            "readyz?verbose",
            200,
            "[+]ping ok\n[-]prometheus failed: reason withheld (informational)\nreadyz check passed\n",
        ),
        ([INFO], "readyz", 200, "ok"),
        ([GOOD, BAD], "readyz/trust", 200, "ok"),
        ([], "readyz/ping", 200, "ok"),
        ([BAD], "readyz/caches", 500, "internal server error: pods not synced: http://secret\n"),
        ([INFO], "readyz/prometheus", 500, "internal server error: refused\n"),
        (
            [Check("x", broken)],
            "readyz?verbose",
            500,
            "[+]ping ok\n[-]x failed: reason withheld\nreadyz check failed\n",
        ),
    ],
)
def test_answer(checks: list[Check], target: str, status: int, text: str) -> None:
    assert answer(checks, target) == HealthAnswer(status, text)


@pytest.mark.parametrize("target", ["readyz/nothing", "readyz/", "statusz", "livez/caches"])
def test_unknown(target: str) -> None:
    assert answer([BAD], target) is None


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
