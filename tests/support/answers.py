"""Tables of `tests/data/answers`: what a pure function is asked, and what it has to answer.

A file has the tables of one module of tests, in a folder of that of the module. A row is a list; rows of an
object have names.
"""

import json
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[1] / "data" / "answers"


def answers(module: str, table: str) -> list[Any]:
    """Return the rows of a table as values of `parametrize`."""
    rows = json.loads((_FOLDER / f"{module}.json").read_text("utf-8"))[table]
    return [pytest.param(*rows[name], id=name) for name in rows] if isinstance(rows, dict) else rows
