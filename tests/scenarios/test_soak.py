"""A short soak: every fault of `benchmarks.soak` at least twice under load, without leaks or wrong answers.

How long answers take, and what an hour adds up to, is the long run's to say.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.support import tools

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SHORT = ("--minutes=0.2", "--requests=60", "--fresh=10", "--fill=200", "--apps=8", "--pods=3")
FAULTS = (
    "certificate_rotated",
    "pods_replaced",
    "prometheus_killed",
    "prometheus_stands_still",
    "rules_broken",
    "rules_reloaded",
    "watches_cut",
)


def test_a_short_soak() -> None:
    tools.require("prometheus", "prometheus")
    done = tools.call(sys.executable, "-m", "benchmarks.soak", *SHORT, cwd=ROOT)
    assert done.returncode == 0, done.stderr + done.stdout[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])["figures"]

    assert found["wrong_answers"] == 0
    assert min(found["right_answers"], found["fresh_requests"], found["callers_hung_up"]) > 20
    assert min(found[fault] for fault in FAULTS) >= 2
    assert found["scaled_up"] >= 1
    for program in ("serve", "scale"):
        assert found[f"{program}_exit_status"] == 0
        # against what was held after a first round of faults: pools may have grown by a few since, what leaks
        # grows with every caller
        assert found[f"{program}_fds_left"] <= 12
        assert found[f"{program}_tasks_left"] <= 8
        assert found[f"{program}_threads_left"] <= 8
        assert found[f"{program}_memory_left_mib"] <= 64
