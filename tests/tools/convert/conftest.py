"""`fastpath convert` run in this process on documents."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.support.verbs import Printed


class Converted:
    """What a run printed. `report` has the lines of standard error without place and object."""

    def __init__(self, printed: Printed) -> None:
        self.status, self.out, self.err = printed
        self.documents = [document for document in yaml.safe_load_all(self.out) if document]
        self.schedules = [tree for tree in self.documents if tree.get("kind") == "FastPathSchedule"]
        self.report = [line.split(": ", 3)[-1] for line in self.err.splitlines()]


@pytest.fixture
def convert(cli: Callable[..., Printed]) -> Callable[..., Converted]:
    def run(*trees: dict[str, Any] | str, verb: tuple[str, ...] = ("convert",)) -> Converted:
        texts = (tree if isinstance(tree, str) else f"{json.dumps(tree)}\n" for tree in trees)
        return Converted(cli(*verb, stdin="---\n".join(texts)))

    return run
