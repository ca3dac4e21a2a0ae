"""Computations in steps of about a millisecond, between which other work may run."""

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")

Steps = Generator[None, None, _T]
"""A computation in steps, which returns its result."""


def run(steps: Steps[_T]) -> _T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
