"""What the headers of a request allow the answer to be: media type, indentation, compression.

The server writes JSON only. Entries that ask for another encoding, or for a transformation (``as=Table``)
that does not exist, are skipped; the request fails only if no other entry accepts plain JSON. Clients send
the same few headers all the time, so what follows from them is remembered.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar

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

MediaType = Literal["json", "aggregated"]
TableVersion = Literal["v1", "v1beta1"]
_Form = TypeVar("_Form", bound=str)


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
    encoding, agent = headers.get("Accept-Encoding", ""), headers.get("User-Agent", "")
    return _choose_representation(encoding[:_LONGEST], agent[:_LONGEST_AGENT], pretty)


def choose_metrics_representation(
    headers: Mapping[str, str],
    pretty: bool | None,  # noqa: FBT001 - as parsed
    *,
    has_table: bool,
) -> Representation:
    """Return how a list of values is wanted.

    Only resource metrics have a Table. Raises NotAcceptableError.
    """
    found = _choose_metrics_representation(
        headers.get("Accept", "")[:_LONGEST],
        headers.get("Accept-Encoding", "")[:_LONGEST],
        headers.get("User-Agent", "")[:_LONGEST_AGENT],
        pretty,
        has_table,
    )
    if found is None:
        raise not_acceptable()
    return found


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
    table = choose_table(accept) if has_table else "" if accepts_json(accept) else None
    if table is None:
        return None
    return _choose_representation(accept_encoding, user_agent, pretty)._replace(table=table)


@functools.lru_cache(maxsize=256)
def _choose_representation(accept_encoding: str, user_agent: str, pretty: bool | None) -> Representation:  # noqa: FBT001 - as above
    if pretty is None:
        pretty = is_pretty_agent(user_agent)
    return Representation(pretty, accepts_gzip(accept_encoding))


def accepts_json(accept: str) -> bool:
    """Return whether plain JSON satisfies an Accept header; an empty one accepts everything."""
    accept = accept[:_LONGEST]
    return not accept.strip() or any(_takes_json(entry) for entry in _ranges(accept))


def choose_discovery(accept: str) -> MediaType | None:
    """Return the form of ``/apis`` that an Accept header prefers, None for neither.

    Of aggregated discovery only v2 is served.
    """
    return _choose_discovery(accept[:_LONGEST])


@functools.lru_cache(maxsize=256)
def _choose_discovery(accept: str) -> MediaType | None:
    return _prefer(accept, "json", _asks_aggregated)


def choose_table(accept: str) -> TableVersion | Literal[""] | None:
    """Return the version of a Table that an Accept header prefers, "" for plain JSON, None for neither."""
    return _prefer(accept[:_LONGEST], "", _asks_table)


def _prefer(accept: str, plain: _Form, asks: Callable[[dict[str, str]], _Form | None]) -> _Form | None:
    """Return `plain` for JSON without parameters, or what `asks` makes of the parameters of a JSON range.

    Ranges of equal quality count in the order written.
    """
    if not accept.strip():
        return plain
    for entry in sorted(_ranges(accept), key=lambda entry: -entry.quality):
        if _takes_json(entry):
            return plain
        if entry.quality > 0 and entry.media_type == JSON and (form := asks(entry.parameters)):
            return form
    return None


def is_pretty_agent(user_agent: str) -> bool:
    """Return whether a person is likely to read the answer, as upstream guesses it."""
    return user_agent.startswith(_PRETTY_AGENTS)


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header names gzip with a quality above zero."""
    ranges = _ranges(accept_encoding[:_LONGEST])
    return any(entry.media_type == "gzip" and entry.quality > 0 for entry in ranges)


def matches_etag(if_none_match: str, etag: str) -> bool:
    """Return whether an If-None-Match header names `etag` (quoted).

    Weak validators compare as strong ones.
    """
    return any(part.strip().removeprefix("W/") in {"*", etag} for part in if_none_match[:_LONGEST].split(","))


def _takes_json(entry: _Range) -> bool:
    return entry.quality > 0 and entry.media_type in _JSON_RANGES and "as" not in entry.parameters


def _asks_aggregated(parameters: dict[str, str]) -> MediaType | None:
    wanted = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
    return "aggregated" if all(parameters.get(name) == value for name, value in wanted.items()) else None


def _asks_table(parameters: dict[str, str]) -> TableVersion | Literal[""] | None:
    if parameters.get("as") == "Table" and parameters.get("g") == "meta.k8s.io":
        match parameters.get("v"):
            case "v1" | "v1beta1" as version:
                return version
    return None


def _ranges(header: str) -> list[_Range]:
    found = []
    for part in header.split(","):
        media_type, *rest = (piece.strip() for piece in part.split(";"))
        parameters = {}
        for piece in rest:
            name, _, value = piece.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        quality = _quality(parameters.pop("q", "1"))
        if media_type:
            found.append(_Range(media_type.lower(), parameters, quality))
    return found


def _quality(text: str) -> float:
    """Parse a q-value; a malformed one counts as 1, as in Go's parser."""
    return float(text) if re.fullmatch(r"[01](\.[0-9]{0,3})?", text) else 1.0
