"""A minute of coverage-guided fuzzing for each reader of what others write."""

import sys
from pathlib import Path

import pytest

from tests.support import tools

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(180)]

TARGETS = ("answer", "exposition", "request", "rules", "selector")


@pytest.mark.parametrize("target", TARGETS)
def test_what_others_write_is_read_or_refused(target: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed; requirements/bench.txt has it")
    command = (sys.executable, "-m", "tests.fuzzing.harness", target, tmp_path / "corpus")
    flags = ("-max_total_time=60", "-timeout=10", f"-artifact_prefix={tmp_path}/")
    done = tools.call(*command, *flags, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done " in done.stderr
