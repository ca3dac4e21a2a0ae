"""The list options of Kubernetes among the query parameters, refused in the order of upstream.

None of them changes an answer. A client that sends an invalid one gets the error that any other API server
sends. The functions take the first value of each parameter by name, as `paths.parse_parameters` returns them.
"""

import re
from collections.abc import Mapping

from adapter import errors
from adapter.model.go_text import quote

_NUMBER = re.compile(r"[+-]?[0-9]+")
_FALSE_WORDS = frozenset({"0", "false"})
_MATCH = "resourceVersionMatch"
_INITIAL = "sendInitialEvents"

NAMES = frozenset(
    {"fieldSelector", "timeoutSeconds", "limit", "resourceVersion", _MATCH, "continue", _INITIAL}
)
"""The query parameters that are read here."""


def is_watch(parameters: Mapping[str, str]) -> bool:
    """Return whether the query asks for a watch."""
    watch = parameters.get("watch")
    return watch is not None and is_true(watch)


def is_true(text: str) -> bool:
    """Return a flag among query parameters: all values but two words are true, the empty text included."""
    return text.lower() not in _FALSE_WORDS


def check_numbers(parameters: Mapping[str, str]) -> None:
    """Raise `errors.BadRequestError` for text that is not a number, or has more than 64 bits."""
    for text in (parameters.get("timeoutSeconds"), parameters.get("limit")):
        if text is None:
            continue
        if not _NUMBER.fullmatch(text):
            raise errors.BadRequestError(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) > 19 or not -(2**63) <= int(text) < 2**63:
            raise errors.BadRequestError(f"strconv.ParseInt: parsing {quote(text)}: value out of range")


def check_together(parameters: Mapping[str, str]) -> None:
    """Raise `errors.InvalidError` with every option that may not stand beside the others."""
    found = _watch_causes(parameters) if is_watch(parameters) else _list_causes(parameters)
    if found:
        raise errors.InvalidError("meta.k8s.io", "ListOptions", found)


def _list_causes(parameters: Mapping[str, str]) -> list[errors.Cause]:
    found = []
    match = parameters.get(_MATCH, "")
    if match:
        if not parameters.get("resourceVersion"):
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if parameters.get("continue"):
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        if match not in {"Exact", "NotOlderThan"}:
            found.append(_unsupported(match, "Exact", "NotOlderThan", ""))
        if match == "Exact" and parameters.get("resourceVersion") == "0":
            found.append(_forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if _INITIAL in parameters:
        found.append(_forbidden(_INITIAL, f"{_INITIAL} is forbidden for list"))
    return found


def _watch_causes(parameters: Mapping[str, str]) -> list[errors.Cause]:
    found = []
    match = parameters.get(_MATCH, "")
    if _INITIAL in parameters:
        if match != "NotOlderThan":
            found.append(_forbidden(_MATCH, f"{_INITIAL} requires setting {_MATCH} to NotOlderThan"))
        gate = "is forbidden for watch unless the WatchList feature gate is enabled"
        found.append(_forbidden(_INITIAL, f"{_INITIAL} {gate}"))
    if match:
        if _INITIAL not in parameters:
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided"))
        if match != "NotOlderThan":
            found.append(_unsupported(match, "NotOlderThan"))
        if parameters.get("continue"):
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    return found


def _forbidden(field: str, detail: str) -> errors.Cause:
    return errors.Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def _unsupported(value: str, *allowed: str) -> errors.Cause:
    listed = ", ".join(map(quote, allowed))
    return errors.Cause(
        "FieldValueNotSupported", f"Unsupported value: {quote(value)}: supported values: {listed}", _MATCH
    )
