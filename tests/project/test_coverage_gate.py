"""A run that misses a branch of the decision code fails, names it, and still ends with pytest's summary."""

import re
import sys
from pathlib import Path

import pytest

from tests.support import coverage_gate, tools

BOTH = "assert sign(1) == 1\n    assert sign(-1) == -1"

CODE = """
def sign(number):
    if number < 0:
        return -1
    return 1
"""


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("folder", "body", "is_named", "processes"),
    [
        pytest.param("rules", BOTH, False, 2, id="covered"),
        pytest.param("rules", "assert sign(1) == 1", True, 2, id="a branch left out"),
        pytest.param("clients", "assert sign(1) == 1", False, 0, id="not decision code"),
    ],
)
def test_gate(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    folder: str,
    body: str,
    is_named: bool,  # noqa: FBT001  # a table's column
    processes: int,
) -> None:
    code = tmp_path / "adapter" / folder / "sign.py"
    for package in ("adapter", "adapter/autoscaler", "adapter/clients", *coverage_gate.GATED):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    code.write_text(CODE)
    place = tmp_path / "tests"
    place.mkdir()
    (place / "test_sign.py").write_text(
        f"from adapter.{folder}.sign import sign\n\ndef test_sign():\n    {body}\n"
    )
    plugin = ["-p", "tests.support.coverage_gate", f"--numprocesses={processes}"]
    command = [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", *plugin]
    path = {"PYTHONPATH": f"{tmp_path}:{request.config.rootpath}"}
    done = tools.call(*command, cwd=tmp_path, env=path)
    assert done.returncode == is_named, done.stdout + done.stderr
    last = done.stdout.rstrip().splitlines()[-1]
    assert re.search(r" 1 (failed|passed)\b.* in [0-9.]+s", last)
    heading = "decision code that no test reaches"
    assert (heading in done.stdout) == is_named
    assert ("adapter/rules/sign.py" in done.stdout.partition(heading)[2]) == is_named
