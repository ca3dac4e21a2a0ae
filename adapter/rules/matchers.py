"""Label matchers: requirements of a selector and names of objects in PromQL, byte for byte as upstream.

`Matcher` keeps label and value separate for templates that use `.LabelValuesByName`.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from adapter.errors import UnsupportedSelectorError
from adapter.model.go_text import quote
from adapter.model.label_selectors import LabelSelector, Operator

_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# PromQL reads `Inf{...}` as a number and, after a comparison, `bool{...}` as a modifier before a selector
# without a name.
_KEYWORD = "inf|nan|atan2|bool|group_left|group_right|ignoring|on"
_SERIES_NAME = re.compile(rf"(?!(?i:{_KEYWORD})\Z)[A-Za-z_:][A-Za-z0-9_:]*\Z")
# Characters of Kubernetes names and label values, and the bar between several of them.
_INERT_VALUE = re.compile(r"[A-Za-z0-9_.:|-]*\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_-]*\Z")  # needs no escaping in a pattern; true of nearly every name
_SHOWN = 200
_MATCHER_BYTES = 200


class Matcher(NamedTuple):
    """One matcher: `label`, the PromQL operator, and the value before quoting."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        """Return the matcher in PromQL, with the label quoted if necessary."""
        return f"{write_label(self.label)}{self.operator}{quote(self.value)}"


# Selector operator to PromQL operator and to the value; a set of one is still a regular expression, as
# upstream.
_TABLE: Mapping[Operator, str] = MappingProxyType(
    {
        Operator.EQUALS: "=",
        Operator.DOUBLE_EQUALS: "=",
        Operator.NOT_EQUALS: "!=",
        Operator.IN: "=~",
        Operator.NOT_IN: "!~",
        Operator.EXISTS: "!=",
        Operator.DOES_NOT_EXIST: "=",
    }
)


def from_selector(selector: LabelSelector) -> tuple[Matcher, ...]:
    """Return one matcher per requirement, in the selector's order (by key). Values are not escaped."""
    matchers = []
    for requirement in selector.requirements:
        operator = _TABLE.get(requirement.operator)
        if operator is None:
            raise UnsupportedSelectorError(f"{requirement.key} {requirement.operator} has no form in PromQL")
        matchers.append(Matcher(requirement.key, operator, "|".join(requirement.values)))
    return tuple(matchers)


def for_names(label: str, names: Iterable[str]) -> Matcher:
    """Return the matcher of the named objects as upstream: `=` for one, `=~` for more, unescaped."""
    listed = tuple(names)
    return Matcher(label, "=" if len(listed) == 1 else "=~", "|".join(listed))


def for_any_of(label: str, names: Iterable[str]) -> Matcher:
    """Return the matcher of the named objects for merged queries, in which a dot matches only a dot."""
    listed = tuple(names)
    if len(listed) == 1:
        return Matcher(label, "=", listed[0])
    return Matcher(label, "=~", "|".join([name if _PLAIN.match(name) else _escape(name) for name in listed]))


def _escape(name: str) -> str:
    return re.escape(name).replace("\\-", "-")


def present(label: str) -> Matcher:
    """Return the matcher of every series that has the label."""
    return Matcher(label, "!=", "")


def join(matchers: Iterable[Matcher]) -> str:
    """Return `.LabelMatchers`."""
    return ",".join(map(str, matchers))


def weigh(matchers: Iterable[Matcher]) -> int:
    """Return the estimated bytes of matchers."""
    return sum(_MATCHER_BYTES + len(matcher.label) + len(matcher.value) for matcher in matchers)


def is_label_name(text: str) -> bool:
    """Whether Prometheus reads `text` as a label name without quotes."""
    return _LABEL_NAME.match(text) is not None


def write_label(name: str) -> str:
    """Return a label name for a matcher or grouping; UTF-8 names are quoted."""
    return name if is_label_name(name) else quote(name)


def is_series_name(text: str) -> bool:
    """Whether `text` before a brace is the name of one series and nothing else.

    Prometheus 3 and VictoriaMetrics store any text as a name, which the owner of a scraped pod chooses.
    """
    return _SERIES_NAME.match(text) is not None


def is_inert(text: str) -> bool:
    """Whether a value can be anywhere in a template, in quotes or not, without ending what surrounds it."""
    return _INERT_VALUE.match(text) is not None


def shorten(text: str) -> str:
    """Return foreign text on one line and cut to a fixed length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
