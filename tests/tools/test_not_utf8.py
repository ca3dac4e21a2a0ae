from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.verbs import Printed


@pytest.mark.parametrize("verb", ["boost", "convert", "evaluate", "schedule"])
def test_a_file_that_is_not_utf_8_is_refused(verb: str, tmp_path: Path, cli: Callable[..., Printed]) -> None:
    path = tmp_path / "latin-1.yaml"
    path.write_bytes(b"a: \xff")
    said = f"fastpath {verb}: {path}: not UTF-8: invalid start byte at byte 3\n"
    assert cli(verb, str(path)) == (2, "", said)
