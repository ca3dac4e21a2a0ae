"""The limits of `--budget`: what the last policy may need, compared to the first."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from fastpath_tools.simulate.results import PolicyFigures

FLAG = "--budget"

KEYS = {"shortage": "shortagePodSeconds", "pods": "podSeconds"}
"""The keys of a budget, and the figure of each."""

_WORDS = {"shortage": "shortage", "pods": "pod seconds"}
_LIMIT = re.compile(r"\s*([^\s<=]*)\s*<=\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_EXAMPLE = "such as shortage<=5%,pods<=110%"


class Limit(NamedTuple):
    """`key` of the last policy may be at most `percent` of that of the first."""

    key: str
    percent: float


def read_budget(text: str) -> tuple[Limit, ...]:
    """Return the limits of a text such as ``shortage<=5%,pods<=110%``. ValueError with what was expected."""
    limits: dict[str, Limit] = {}
    for part in text.split(","):
        match = _LIMIT.fullmatch(part)
        if match is None:
            raise ValueError(f"expected KEY<=PERCENT%, {_EXAMPLE}")
        key, percent = match.groups()
        if key not in KEYS:
            raise ValueError(f"expected {' or '.join(KEYS)} before <=, {_EXAMPLE}")
        if key in limits:
            raise ValueError(f"expected {key} once")
        limits[key] = Limit(key, float(percent))
    return tuple(limits.values())


def check_budget(text: str) -> str:
    """Return what is wrong with the text of a budget, "" for nothing."""
    try:
        if text:
            read_budget(text)
    except ValueError as error:
        return str(error)
    return ""


class BudgetVerdict(NamedTuple):
    """Whether one limit is kept, and the sentence that says so, without the final stop."""

    is_kept: bool
    sentence: str


def judge(limits: Sequence[Limit], first: PolicyFigures, last: PolicyFigures) -> tuple[BudgetVerdict, ...]:
    return tuple(_judge(limit, first, last) for limit in limits)


def _judge(limit: Limit, first: PolicyFigures, last: PolicyFigures) -> BudgetVerdict:
    before, after = first.mean(KEYS[limit.key]), last.mean(KEYS[limit.key])
    # A figure of 0 stays within any limit only as 0.
    is_kept = after <= before * limit.percent / 100
    share = 100 * after / before if before else math.inf if after else 0.0
    words = _WORDS[limit.key]
    if math.isinf(share):
        found = f"{after:g} pod seconds, and 0 of {first.policy}"
    else:
        found = f"{share:.1f} % of the {words} of {first.policy}"
    return BudgetVerdict(is_kept, f"{words} of {last.policy}: {found}; the budget is {limit.percent:g} %")
