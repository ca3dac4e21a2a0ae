"""The objects of one kind that cannot be read: each is reported once, and no more than some by name."""

from collections.abc import Callable

from adapter.telemetry.problems import ProblemLog

MOST_NAMED = 50
"""Limit of objects that are reported by name: one client can create very many."""

PROBLEM = "object"
_MESSAGE = "an object cannot be read; its last state counts"


class UnreadableObjects:
    """Reports the unreadable objects of the kind `name`; `count` is called for each that arrives."""

    def __init__(self, problems: ProblemLog, name: str, count: Callable[[str], None]) -> None:
        self._problems = problems
        self._name = name
        self._count = count
        self._named: set[tuple[str, str]] = set()
        self._has_more = False

    def report(self, namespace: str, name: str, reason: str) -> bool:
        """Report an object; tell whether it is reported by name for the first time."""
        self._count("Unreadable")
        key = namespace, name
        is_new = key not in self._named
        if not is_new or len(self._named) < MOST_NAMED:
            self._named.add(key)
            self._problems.report(PROBLEM, _MESSAGE, reason, subject=self._subject_of(key))
            return is_new
        self._has_more = True
        more = f"more than {MOST_NAMED} objects cannot be read"
        self._problems.report(PROBLEM, _MESSAGE, more, subject=self._name)
        return False

    def forget(self, namespace: str, name: str) -> None:
        """Note that an object could be read, or is gone."""
        key = namespace, name
        if key in self._named:
            self._named.discard(key)
            self._problems.resolve(PROBLEM, subject=self._subject_of(key))
            if self._has_more and not self._named:
                self._has_more = False
                self._problems.resolve(PROBLEM, subject=self._name)

    def close(self) -> None:
        """Resolve what was reported."""
        for key in tuple(self._named):
            self.forget(*key)

    def _subject_of(self, key: tuple[str, str]) -> str:
        namespace, name = key
        return f"{self._name} {namespace}/{name}" if namespace else f"{self._name} {name}"
