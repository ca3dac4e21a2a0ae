"""A run that leaves out a branch of the decision code fails, says which, and still ends with pytest's summary."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
def sign(number):
    if number < 0:
        return -1
    return 1
"""


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("folder", "body", "status", "said"),
    [
        pytest.param("rules", "assert sign(1) == 1\n    assert sign(-1) == -1", 0, None, id="covered"),
        pytest.param("rules", "assert sign(1) == 1", 1, "adapter/rules/sign.py", id="a branch left out"),
        pytest.param("clients", "assert sign(1) == 1", 0, None, id="not decision code"),
        pytest.param("rules", "assert sign(1) == 2", 1, "adapter/rules/sign.py", id="failed as well"),
    ],
)
def test_gate(
    tmp_path: Path, request: pytest.FixtureRequest, folder: str, body: str, status: int, said: str | None
) -> None:
    code = tmp_path / "adapter" / folder / "sign.py"
    for package in ("", "model", "rules", "clients"):
        (tmp_path / "adapter" / package).mkdir()
        (tmp_path / "adapter" / package / "__init__.py").touch()
    code.write_text(CODE)
    (tmp_path / "test_sign.py").write_text(
        f"from adapter.{folder}.sign import sign\n\ndef test_sign():\n    {body}\n"
    )
    (tmp_path / "pyproject.toml").write_text('[tool.coverage.run]\nbranch = true\nsource = ["."]\n')
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-p", "tests.support.coverage_gate"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{request.config.rootpath}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    last = done.stdout.rstrip().splitlines()[-1]
    assert " 1 failed in " in last or " 1 passed in " in last
    heading = "decision code that no test reaches"
    assert (heading in done.stdout) == (said is not None)
    if said is not None:
        assert said in done.stdout.split(heading)[1]
