"""JSON patches (RFC 6902) as values: the operations of a change, and the document they make.

`add`, `remove`, `replace` and `test` exist. An operation that is applied fits its document, because it was
made for it.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

ADD, REMOVE, REPLACE, TEST = "add", "remove", "replace", "test"

END = "-"
"""The place after the last item of a list."""


class PatchOperation(NamedTuple):
    """One step: what is done at which place.

    `value` is what stands there afterwards, or for `test` what has to stand there.
    """

    op: str
    path: tuple[str, ...]
    value: Any = None

    def below(self, *names: str) -> "PatchOperation":
        """Return the same in a document that has this one below `names`."""
        return self._replace(path=(*names, *self.path))

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        shown = {"op": self.op, "path": "".join(f"/{_escape(name)}" for name in self.path)}
        return shown if self.op == REMOVE else shown | {"value": self.value}


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def apply(document: Any, operations: Iterable[PatchOperation]) -> Any:
    """Return a document after operations, each on what the one before it made.

    What is only tested is not looked at.
    """
    own = [operation._replace(value=_copied(operation.value)) for operation in operations]
    return apply_to(_copied(document), own)


def apply_to(result: Any, operations: Iterable[PatchOperation]) -> Any:
    """Apply operations to the document itself, and return it; their values become part of it."""
    for operation in operations:
        *above, name = operation.path
        place = result
        for step in above:
            place = place[int(step)] if isinstance(place, list) else place[step]
        value = operation.value
        if operation.op == TEST:
            continue
        if isinstance(place, dict):
            if operation.op == REMOVE:
                del place[name]
            else:
                place[name] = value
        elif operation.op == ADD:
            place.insert(len(place) if name == END else int(name), value)
        elif operation.op == REPLACE:
            place[int(name)] = value
        else:
            del place[int(name)]
    return result


def _copied(value: Any) -> Any:
    """Return a value with nothing in it twice: what an anchor and its aliases share is shared no longer."""
    if isinstance(value, dict):
        return {name: _copied(below) for name, below in value.items()}
    return [_copied(below) for below in value] if isinstance(value, list) else value
