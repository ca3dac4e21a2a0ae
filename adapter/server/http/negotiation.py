"""What the headers of a request allow the answer to be: media type, indentation, compression.

The server writes JSON only. Entries that ask for another encoding, or for a transformation (``as=Table``)
that does not exist, are skipped; the request fails only if no other entry accepts plain JSON. Clients send
the same few headers all the time, so what follows from them is remembered.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from adapter import errors

JSON = "application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
COMPRESS_ABOVE = 128 * 1024
"""Bodies longer than this many bytes are compressed for callers that accept it, as Go servers do."""

_LONGEST = 4096
"""Characters of a header that are read, and remembered: a caller chooses how many it sends."""

_LONGEST_AGENT = 16

_JSON_RANGES = frozenset({JSON, "application/*", "*/*"})
AUDIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
"""A caller's Audit-Id that may be echoed; it is anyone's text."""

_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")
"""Agents of people, as upstream guesses: their answers are indented."""


class Representation(NamedTuple):
    """How a caller wants a body; `table` is the version of a Table, "" for the plain answer."""

    pretty: bool
    compressed: bool
    table: str = ""


class _Range(NamedTuple):
    media_type: str
    parameters: dict[str, str]
    quality: float


def choose_representation(headers: Mapping[str, str], pretty: bool | None) -> Representation:  # noqa: FBT001 - as parsed
    """Return how a body of any media type is wanted; `pretty` is the query parameter, if given."""
    if pretty is None:
        pretty = headers.get("User-Agent", "").startswith(_PRETTY_AGENTS)
    ranges = _ranges(headers.get("Accept-Encoding", "")[:_LONGEST])
    return Representation(pretty, any(entry.media_type == "gzip" and entry.quality > 0 for entry in ranges))


def choose_metrics_representation(
    headers: Mapping[str, str],
    pretty: bool | None,  # noqa: FBT001 - as parsed
    *,
    has_table: bool,
) -> Representation:
    """Return how a list of values is wanted.

    Only resource metrics have a Table. Raises NotAcceptableError.
    """
    representation = _choose_metrics_representation(
        headers.get("Accept", "")[:_LONGEST],
        headers.get("Accept-Encoding", "")[:_LONGEST],
        headers.get("User-Agent", "")[:_LONGEST_AGENT],
        pretty,
        has_table,
    )
    if representation is None:
        raise not_acceptable()
    return representation


def not_acceptable() -> errors.NotAcceptableError:
    return errors.NotAcceptableError(f"only the following media types are accepted: {JSON}")


@functools.lru_cache(maxsize=256)
def _choose_metrics_representation(
    accept: str,
    accept_encoding: str,
    user_agent: str,
    pretty: bool | None,  # noqa: FBT001 - positional for the cache
    has_table: bool,  # noqa: FBT001 - positional for the cache
) -> Representation | None:
    table = choose_form(accept, asks_table if has_table else asks_nothing)
    if table is None:
        return None
    headers = {"Accept-Encoding": accept_encoding, "User-Agent": user_agent}
    return choose_representation(headers, pretty)._replace(table=table)


def choose_form(accept: str, asks: Callable[[dict[str, str]], str]) -> str | None:
    """Return the form of a document that an Accept header prefers, None for none that is served.

    "" is plain JSON; an empty header accepts everything. `asks` returns the form that the parameters of a
    JSON range ask for, "" for none. Ranges of equal quality count in the order written.
    """
    accept = accept[:_LONGEST]
    if not accept.strip():
        return ""
    for entry in sorted(_ranges(accept), key=lambda entry: -entry.quality):
        if entry.quality > 0 and entry.media_type in _JSON_RANGES and "as" not in entry.parameters:
            return ""
        if entry.quality > 0 and entry.media_type == JSON and (form := asks(entry.parameters)):
            return form
    return None


def matches_etag(if_none_match: str, etag: str) -> bool:
    """Return whether an If-None-Match header names `etag` (quoted).

    Weak validators compare as strong ones.
    """
    return any(part.strip().removeprefix("W/") in {"*", etag} for part in if_none_match[:_LONGEST].split(","))


def asks_nothing(_: dict[str, str]) -> str:
    return ""


def asks_aggregated(parameters: dict[str, str]) -> str:
    """Return the form of ``/apis`` beside plain JSON; of aggregated discovery only v2 is served."""
    wanted = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
    return "aggregated" if wanted.items() <= parameters.items() else ""


def asks_table(parameters: dict[str, str]) -> str:
    """Return the version of a Table."""
    version = parameters.get("v", "")
    is_table = parameters.get("as") == "Table" and parameters.get("g") == "meta.k8s.io"
    return version if is_table and version in {"v1", "v1beta1"} else ""


def _ranges(header: str) -> list[_Range]:
    ranges = []
    for part in header.split(","):
        media_type, *rest = (piece.strip() for piece in part.split(";"))
        parameters = {}
        for piece in rest:
            name, _, value = piece.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        quality = parameters.pop("q", "1")
        is_number = re.fullmatch(r"[01](\.[0-9]{0,3})?", quality)  # else it counts as 1, as in Go's parser
        if media_type:
            ranges.append(_Range(media_type.lower(), parameters, float(quality) if is_number else 1.0))
    return ranges
