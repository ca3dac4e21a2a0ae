"""Query parameters of the metrics APIs: from a raw query string and a path to the question that they ask.

The options about the call itself are read before the caller is known, the selectors after that. The list
options of Kubernetes change no answer: a client that sends an invalid one gets the error that any other API
server sends, in the order of upstream.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from adapter import errors
from adapter.model import timestamps
from adapter.model.go_text import quote
from adapter.model.metrics import CustomQuestion, ExternalQuestion, ResourceQuestion
from adapter.model.objects import field_selectors, label_selectors
from adapter.server.api.paths import WILDCARD, MetricRequest

Question: TypeAlias = CustomQuestion | ExternalQuestion | ResourceQuestion

MOST_SYMBOLS = 4000
LONGEST_SELECTOR = 32 * 1024
"""Bounds on a selector's commas, brackets and operators, and on its characters: parsing takes time."""

LONG_QUERY = 4096
"""Bytes of a raw query above which parsing its selectors may take longer than a few milliseconds."""

ANONYMOUS_QUERY = 1024
"""Bytes of a raw query that an anonymous caller may send."""

_LONGEST_TIMEOUT = 100
_ESCAPE_CUT_SHORT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE_WORDS = frozenset({"0", "false"})
_LONGEST_WORD = 3 * len("false") + 1  # escaped; longer text means neither true nor false
_NUMBER = re.compile(r"[+-]?[0-9]+")

_CALL_OPTIONS = frozenset({"pretty", "timeout", "watch"})
_SELECTORS = ("labelSelector", "metricLabelSelector", "fieldSelector")
_MATCH = "resourceVersionMatch"
_INITIAL = "sendInitialEvents"
_NUMBERS = ("timeoutSeconds", "limit")
_LIST_OPTIONS = (*_NUMBERS, "resourceVersion", _MATCH, "continue", _INITIAL)
_PARAMETERS = frozenset({*_SELECTORS, *_LIST_OPTIONS, "includeObject"})


class CallOptions(NamedTuple):
    """The query parameters that are needed before the caller is known: the first value of each.

    `pretty` is None if absent or empty; `timeout` is in seconds, None if absent or not positive.
    """

    pretty: bool | None = None
    timeout: float | None = None
    watch: bool = False


NO_OPTIONS = CallOptions()


def read_call_options(query: str) -> CallOptions:
    """Read the options about the call itself from a raw query, without decoding the rest of it.

    kube-apiserver reads these before it authenticates. Raises BadRequestError for a bad `timeout`.
    """
    first = _first_values(query, _CALL_OPTIONS)
    if not first:
        return NO_OPTIONS
    pretty = _decode_form(first.get("pretty", "")[:_LONGEST_WORD])
    watch = first.get("watch")
    return CallOptions(
        pretty=pretty in _TRUE_WORDS if pretty else None,
        timeout=_timeout(first.get("timeout", "")),
        # all other values are true, the empty text included
        watch=watch is not None and _decode_form(watch[:_LONGEST_WORD]).lower() not in _FALSE_WORDS,
    )


def parse_parameters(query: str) -> Mapping[str, str]:
    """Return the parameters that a question is made of by name, of each the first value.

    Parsed as Go's net/url does: pairs that do not decode or hold a semicolon are dropped.
    """
    return {name: _decode_form(value) for name, value in _first_values(query, _PARAMETERS).items()}


def build_question(request: MetricRequest, parameters: Mapping[str, str], *, watch: bool) -> Question:
    """Return the question of a request, or of a `watch`.

    A selector that is too large is a 400. A bad `labelSelector` is a 400 even where it selects nothing
    because a name is given; a bad `metricLabelSelector` is a 500 without reason, as upstream. A
    `fieldSelector` of a custom or external metric may only repeat the name of the path. Watching external or
    resource metrics is a 405.
    """
    for name in _SELECTORS:
        text = parameters.get(name, "")
        if len(text) > LONGEST_SELECTOR or sum(map(text.count, ",()!=<>")) > MOST_SYMBOLS:
            raise errors.BadRequestError(f"{name} is too large")
    for name in _NUMBERS:
        if name in parameters:
            _check_number(parameters[name])
    if request.form == "external":
        return _build_external_question(request, parameters, watch=watch)
    if request.form == "resource":
        return _build_resource_question(request, parameters, watch=watch)
    return _build_custom_question(request, parameters)


def _build_external_question(
    request: MetricRequest, parameters: Mapping[str, str], *, watch: bool
) -> ExternalQuestion:
    selector = label_selectors.parse_selector(parameters.get("labelSelector", ""))
    fields = field_selectors.parse_selector(parameters.get("fieldSelector", ""))
    # every option that may not stand beside the others
    if causes := _watch_causes(parameters) if watch else _list_causes(parameters):
        raise errors.InvalidError("meta.k8s.io", "ListOptions", causes)
    field_selectors.check_fields(fields)
    if watch:
        raise _no_watch(request.group, "*")
    assert request.namespace is not None
    return ExternalQuestion(request.namespace, request.metric, selector)


def _build_custom_question(request: MetricRequest, parameters: Mapping[str, str]) -> CustomQuestion:
    selector = label_selectors.parse_selector(parameters.get("labelSelector", ""))
    if text := parameters.get("fieldSelector"):
        fields = field_selectors.parse_selector(text)
        field_selectors.check_fields(fields)
        field_selectors.check_name(fields, request.name or WILDCARD)
    metric_selector = label_selectors.EVERYTHING
    if text := parameters.get("metricLabelSelector"):
        try:
            metric_selector = label_selectors.parse_selector(text)
        except errors.BadRequestError as error:
            raise errors.PlainError(error.message) from error
    objects = selector if request.name is None else label_selectors.EVERYTHING
    resource, _, group = request.resource.partition(".")
    spelled = request.resource if group else resource  # errors do not repeat a dot without a group after it
    return CustomQuestion(spelled, request.namespace, request.name, request.metric, objects, metric_selector)


def _build_resource_question(
    request: MetricRequest, parameters: Mapping[str, str], *, watch: bool
) -> ResourceQuestion:
    """Return the question about pods or nodes; where a name is given the selectors are not even parsed."""
    resource: Literal["pods", "nodes"] = "pods" if request.resource == "pods" else "nodes"
    if request.name is not None:
        everything = label_selectors.EVERYTHING, field_selectors.EVERYTHING
        return ResourceQuestion(resource, request.namespace, request.name, *everything)
    objects = label_selectors.parse_selector(parameters.get("labelSelector", ""))
    fields = field_selectors.parse_metadata(parameters.get("fieldSelector", ""))
    if watch:
        raise _no_watch(request.group, resource)
    return ResourceQuestion(resource, request.namespace, None, objects, fields)


def _no_watch(group: str, kind: str) -> errors.MethodNotAllowedError:
    message = f'watch is not supported on resources of kind "{kind}.{group}"'
    return errors.MethodNotAllowedError(message, {"group": group, "kind": kind})


def _check_number(text: str) -> None:
    """Raise `errors.BadRequestError` for text that is not a number, or has more than 64 bits."""
    if not _NUMBER.fullmatch(text):
        raise errors.BadRequestError(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 19 or not -(2**63) <= int(text) < 2**63:
        raise errors.BadRequestError(f"strconv.ParseInt: parsing {quote(text)}: value out of range")


def _list_causes(parameters: Mapping[str, str]) -> list[errors.Cause]:
    causes = []
    match = parameters.get(_MATCH, "")
    if match:
        if not parameters.get("resourceVersion"):
            causes.append(_forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if parameters.get("continue"):
            causes.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        if match not in {"Exact", "NotOlderThan"}:
            causes.append(_unsupported(match, "Exact", "NotOlderThan", ""))
        if match == "Exact" and parameters.get("resourceVersion") == "0":
            causes.append(_forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if _INITIAL in parameters:
        causes.append(_forbidden(_INITIAL, f"{_INITIAL} is forbidden for list"))
    return causes


def _watch_causes(parameters: Mapping[str, str]) -> list[errors.Cause]:
    causes = []
    match = parameters.get(_MATCH, "")
    if _INITIAL in parameters:
        if match != "NotOlderThan":
            causes.append(_forbidden(_MATCH, f"{_INITIAL} requires setting {_MATCH} to NotOlderThan"))
        gate = "is forbidden for watch unless the WatchList feature gate is enabled"
        causes.append(_forbidden(_INITIAL, f"{_INITIAL} {gate}"))
    if match:
        if _INITIAL not in parameters:
            causes.append(
                _forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided")
            )
        if match != "NotOlderThan":
            causes.append(_unsupported(match, "NotOlderThan"))
        if parameters.get("continue"):
            causes.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    return causes


def _forbidden(field: str, detail: str) -> errors.Cause:
    return errors.Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def _unsupported(value: str, *allowed: str) -> errors.Cause:
    listed = ", ".join(map(quote, allowed))
    return errors.Cause(
        "FieldValueNotSupported", f"Unsupported value: {quote(value)}: supported values: {listed}", _MATCH
    )


def _timeout(text: str) -> float | None:
    """Parse the raw value of `timeout`; as upstream, zero and less are no timeout."""
    if not text:
        return None
    if len(text) > _LONGEST_TIMEOUT:
        raise errors.BadRequestError("invalid timeout specified in the request URL - it is too long")
    try:
        seconds = timestamps.parse_go_duration(_decode_form(text))
    except ValueError as error:
        raise errors.BadRequestError(f"invalid timeout specified in the request URL - {error}") from error
    return seconds if seconds > 0 else None


def _first_values(query: str, names: Collection[str]) -> dict[str, str]:
    """Return the first value of each of these parameters, undecoded."""
    values: dict[str, str] = {}
    longest = 3 * max(map(len, names))  # each character may be written as an escape
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if len(key) > longest:
            continue
        name = _decode_form(key) if "%" in key else key
        if name in names and name not in values and _is_kept(part):
            values[name] = value
    return values


def _is_kept(part: str) -> bool:
    return bool(part) and ";" not in part and not _ESCAPE_CUT_SHORT.search(part)


def decode_pairs(query: str) -> Iterator[tuple[str, str]]:
    """Yield all parameters in order, with "" for one without a value."""
    for part in query.split("&"):
        if _is_kept(part):
            key, _, value = part.partition("=")
            yield _decode_form(key), _decode_form(value)


def _decode_form(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")
