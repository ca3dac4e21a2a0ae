"""Label selectors as API objects carry them: ``matchLabels`` and ``matchExpressions``.

They are compiled to a `LabelSelector`, made of one, and printed as in Go for metric descriptions and error
messages.
Mirrors ``metav1.LabelSelector``.
"""

import json
from collections.abc import Mapping

import msgspec

from adapter import errors
from adapter.model.go_text import quote
from adapter.model.objects import label_selectors
from adapter.model.objects.label_selectors import LabelSelector, Operator, Requirement

MOST_PARTS = 256
"""The most labels, conditions, and values of a condition, of the selector of a metric."""

LONGEST_KEY, LONGEST_VALUE = 317, 63
"""What Kubernetes admits as a label."""

LONGEST_TEXT = 16 * 1024
"""The longest text of the selector of a metric, as of that of a scale."""

OPERATOR_TEXTS = {
    Operator.IN: "In",
    Operator.NOT_IN: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
}
_OPERATORS = {text: operator for operator, text in OPERATOR_TEXTS.items()}


def _drop_empty(part: msgspec.Struct, *names: str) -> None:
    for name in names:
        if not getattr(part, name):
            msgspec.structs.force_setattr(part, name, None)


class MatchExpression(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition on one label. `operator` is checked when the selector is compiled, as upstream."""

    key: str = msgspec.field(default_factory=str)
    operator: str = msgspec.field(default_factory=str)
    values: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Make no values of an empty list: upstream writes none."""
        _drop_empty(self, "values")


class APISelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A selector as it is written; nothing in it means everything."""

    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[MatchExpression, ...] | None = None

    def __post_init__(self) -> None:
        """Leave out what is empty: upstream writes no empty parts."""
        _drop_empty(self, "match_labels", "match_expressions")


def compile_selector(selector: APISelector | None) -> LabelSelector:
    """Return the requirements of a selector, sorted as in its text; None has none, so it selects everything.

    Mirrors ``LabelSelectorAsSelector``: ValueError with its sentence for the first part that is wrong.
    """
    if selector is None:
        return label_selectors.EVERYTHING
    requirements = [
        _requirement(key, Operator.EQUALS, (value,)) for key, value in (selector.match_labels or {}).items()
    ]
    for expression in selector.match_expressions or ():
        operator = _OPERATORS.get(expression.operator)
        if operator is None:
            raise ValueError(f"{quote(expression.operator)} is not a valid label selector operator")
        requirements.append(_requirement(expression.key, operator, expression.values or ()))
    return LabelSelector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def to_api(selector: LabelSelector) -> APISelector | None:
    """Return a selector as it is written, None for everything.

    Mirrors ``metav1.ParseToLabelSelector``: both equality operators become labels (the last of one key wins),
    and what the API form cannot say raises `errors.PlainError` with upstream's sentence.
    """
    labels: dict[str, str] = {}
    expressions = []
    for key, operator, values in selector.requirements:
        match operator:
            case Operator.EQUALS | Operator.DOUBLE_EQUALS:
                labels[key] = values[0]
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                raise errors.PlainError(f'"{operator}" isn\'t supported in label selectors')
            case Operator.NOT_EQUALS:
                raise errors.PlainError(f'"{operator}" is not a valid label selector operator')
            case _:
                expressions.append(MatchExpression(key, OPERATOR_TEXTS[operator], values))
    return APISelector(labels, tuple(expressions)) if selector.requirements else None


TOO_LARGE = (
    f"must have at most {MOST_PARTS} labels, conditions and values of one, and {LONGEST_TEXT} characters"
)


def is_too_large(selector: APISelector) -> bool:
    """Tell whether a selector has too many parts, one longer than that of a label, or is too long."""
    labels, conditions = selector.match_labels or {}, selector.match_expressions or ()
    listed = labels, conditions, *(one.values or () for one in conditions)
    values = *labels.values(), *(value for one in conditions for value in one.values or ())
    keys = (key for one in conditions for key in (one.key, one.operator))
    return (
        max(map(len, listed)) > MOST_PARTS
        or max(map(len, values), default=0) > LONGEST_VALUE
        or max(map(len, keys), default=0) > LONGEST_KEY
        or len(go_text(selector)) > LONGEST_TEXT
    )


def _requirement(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    """Return a checked requirement, as ``labels.NewRequirement``; several complaints stand in brackets."""
    complaints = []
    if faults := label_selectors.key_faults(key):
        complaints.append(label_selectors.invalid("key", key, _joined(faults)))
    if operator in {Operator.IN, Operator.NOT_IN} and not values:
        complaints.append(
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
        )
    if operator in {Operator.EXISTS, Operator.DOES_NOT_EXIST} and values:
        listed = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        complaints.append(
            f"values: Invalid value: {listed}: values set must be empty for exists and does not exist"
        )
    for index, value in enumerate(values):
        if faults := label_selectors.value_faults(value):
            complaints.append(label_selectors.invalid(f"values[{index}][{key}]", value, _joined(faults)))
    if complaints:
        raise ValueError(complaints[0] if len(complaints) == 1 else f"[{', '.join(complaints)}]")
    return Requirement(key, operator, tuple(sorted(set(values))))


def _joined(faults: list[str]) -> str:
    return label_selectors.in_later_words("; ".join(faults))


def go_text(selector: APISelector | None) -> str:
    """Return what Go's ``%+v`` prints for a pointer to the selector: ``nil`` or ``&LabelSelector{...}``."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.match_labels or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{one.key},Operator:{one.operator},"
        f"Values:[{' '.join(one.values or ())}],}},"
        for one in selector.match_expressions or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
