"""The documents that say what is served: discovery, OpenAPI, version, the list of paths.

Each is built from the provider's lists when it is first requested after the provider's `generation` changed,
and kept as bytes. Large ones are built piece by piece, and the event loop does other work in between. Their
content is made in `discovery` and `openapi`.
"""

import asyncio
import functools
import hashlib
import logging
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import NamedTuple

import msgspec

from adapter.model.metrics import MetricsProvider
from adapter.runtime.steps import run_steps
from adapter.server.api import discovery, encoding
from adapter.server.api.discovery import ListedMetrics
from adapter.server.api.paths import VERSIONS
from adapter.server.http import negotiation
from adapter.telemetry import logs

log = logging.getLogger(__name__)

_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


class ServedDocument(NamedTuple):
    """A document ready to send. `etag` is quoted, and "" where a 304 would count as a failure."""

    body: bytes
    content_type: str
    etag: str


class _DocumentBuilder(NamedTuple):
    """Builds a document: its body in pieces, and its headers."""

    pieces: Callable[[ListedMetrics], Iterable[bytes]]
    content_type: str = negotiation.JSON
    with_etag: bool = False


class Documents:
    """The documents of one server. `groups` are served with or without metrics, others never.

    `versions` has the versions of every group that can be served, the preferred one first.
    """

    def __init__(
        self,
        provider: MetricsProvider,
        groups: Iterable[str],
        version: str,
        versions: Mapping[str, tuple[str, ...]] = VERSIONS,
    ) -> None:
        self._provider = provider
        self._versions = versions
        self.served: Mapping[str, tuple[str, ...]] = {}
        """The versions of each group that is served, by group; replaced as a whole."""
        self._version = version
        self._generation: int | None = None
        self._built: dict[tuple[str, bool], ServedDocument] = {}
        self._listed: tuple[int, ListedMetrics] | None = None  # by the provider's generation
        self._building = asyncio.Lock()
        self._builders: dict[tuple[str, bool], _DocumentBuilder] = {}
        self.serve(groups)

    def serve(self, groups: Iterable[str]) -> None:
        """Serve these groups too.

        A served group stays served: an APIService may exist for it, and one without an answer harms the whole
        cluster.
        """
        wanted = {*self.served, *groups}
        if unknown := wanted - self._versions.keys():
            raise ValueError(f"no such API group: {', '.join(sorted(unknown))}")
        if wanted != self.served.keys() or not self._builders:
            self.served = {group: self._versions[group] for group in sorted(wanted)}
            self._built.clear()
            self._builders = self._table()

    async def find(self, path: str, *, aggregated: bool = False) -> ServedDocument | None:
        """Return the document at `path` (no slash at its end), None for an unknown path.

        `aggregated` asks for the aggregated form, which only ``/apis`` has.
        """
        builder = self._builders.get((path, aggregated))
        if builder is None:
            return None
        document = self._find_built(path, aggregated=aggregated)
        if document is not None:
            return document
        async with self._building:
            document = self._find_built(path, aggregated=aggregated)
            if document is not None:  # built in the meantime
                return document
            generation, served = self._provider.generation, self.served
            document = await _build(builder, await self._list())
            if generation == self._provider.generation and served is self.served:
                self._built[path, aggregated] = document
            return document

    async def _list(self) -> ListedMetrics:
        """Return the metrics to list now, and log if that is not all of them. `_building` is held."""
        generation = self._provider.generation
        if self._listed is not None and self._listed[0] == generation:
            return self._listed[1]
        steps = discovery.listing(self._provider.custom_metrics(), self._provider.external_metrics())
        listed = await run_steps(steps)
        was_whole = self._listed is None or not self._listed[1].left_out
        if listed.left_out and was_whole:
            facts = logs.facts(limit=discovery.MOST_LISTED, left_out=listed.left_out)
            log.warning(
                "the discovery documents do not list all metrics; those left out are served by name",
                extra=facts,
            )
        self._listed = generation, listed
        return listed

    def _find_built(self, path: str, *, aggregated: bool) -> ServedDocument | None:
        if self._generation != self._provider.generation:
            self._generation = self._provider.generation
            self._built.clear()
        return self._built.get((path, aggregated))

    def _table(self) -> dict[tuple[str, bool], _DocumentBuilder]:
        served, program = self.served, self._version
        specifications = {
            f"apis/{group}/{version}": _encoded(build_v3, group, version, program)
            for group, versions in served.items()
            for version in versions
        }
        index = _DocumentBuilder(lambda _: _indented({"paths": paths}))
        table: dict[tuple[str, bool], _DocumentBuilder] = {
            ("/", False): index,
            ("/index.html", False): index,
            ("/apis", False): _static(_encoded(_group_list, served)),
            ("/apis", True): _DocumentBuilder(
                functools.partial(discovery.aggregated, served), negotiation.AGGREGATED, with_etag=True
            ),
            ("/openapi/v2", False): _static(_encoded(build_v2, served, program), with_etag=True),
            ("/openapi/v3", False): _static(_encoded(build_root, specifications), with_etag=True),
            ("/version", False): _DocumentBuilder(lambda _: _indented(_version_document(program))),
        }
        for group, versions in served.items():
            table[f"/apis/{group}", False] = _static(_encoded(_group, group, versions))
            for version in versions:
                resources = functools.partial(discovery.resource_list, group, version)
                table[f"/apis/{group}/{version}", False] = _DocumentBuilder(resources)
        for path, encode in specifications.items():
            table[f"/openapi/v3/{path}", False] = _static(encode, with_etag=True)
        paths = sorted({path for path, _ in table} - {"/"} | {*_HEALTH_PATHS, "/metrics"})
        return table


async def _build(builder: _DocumentBuilder, listed: ListedMetrics) -> ServedDocument:
    """Build a document; other work may run after each piece."""
    pieces: list[bytes] = []
    digest = hashlib.sha256()
    for piece in builder.pieces(listed):
        pieces.append(piece)
        if builder.with_etag:
            digest.update(piece)
        await asyncio.sleep(0)
    etag = f'"{digest.hexdigest().upper()}"' if builder.with_etag else ""
    return ServedDocument(b"".join(pieces), builder.content_type, etag)


def _group_list(served: Mapping[str, Sequence[str]]) -> Mapping[str, object]:
    entries = [discovery.group_entry(group, versions) for group, versions in served.items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": entries}


def _group(group: str, versions: Sequence[str]) -> Mapping[str, object]:
    return {"kind": "APIGroup", "apiVersion": "v1", **discovery.group_entry(group, versions)}


def _encoded(build: Callable[..., Mapping[str, object]], *arguments: object) -> Callable[[], bytes]:
    """Return what encodes a document when it is first requested, and never again."""
    return functools.cache(lambda: encoding.encode_as_built(build(*arguments)))


def _static(encode: Callable[[], bytes], *, with_etag: bool = False) -> _DocumentBuilder:
    """Return the builder of a document that depends on nothing but the groups that are served."""
    return _DocumentBuilder(lambda _: (encode(),), with_etag=with_etag)


def _indented(document: Mapping[str, object]) -> Iterator[bytes]:
    """Yield a document that upstream always sends indented."""
    yield encoding.indent(encoding.encode_as_built(document))


def _version_document(version: str) -> dict[str, object]:
    """Return the document that `kubectl version` reads.

    Fields about a Go build are empty, or describe Python.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return {
        "major": numbers[1] if numbers else "",
        "minor": numbers[2] if numbers else "",
        "gitVersion": f"v{version}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{sys.platform}/{platform.machine()}",
    }


JSON = dict[str, object]


class _Specification(msgspec.Struct):
    """Paths and schemas by group and version of the API, for either version of OpenAPI."""

    v2: dict[str, dict[str, JSON]]
    v3: dict[str, dict[str, JSON]]


@functools.cache
def _load() -> _Specification:
    text = resources.files(__package__).joinpath("openapi.json").read_bytes()
    return msgspec.json.decode(text, type=_Specification)


def build_v2(served: Mapping[str, Sequence[str]], version: str) -> JSON:
    """Return the Swagger 2.0 document of groups and their versions; `version` is the program's."""
    paths: JSON = {}
    definitions: JSON = {}
    for group, versions in served.items():
        for api_version in versions:
            part = _load().v2[f"{group}/{api_version}"]
            paths |= part["paths"]
            definitions |= part["definitions"]
    return {"swagger": "2.0", "info": _info(version), "paths": paths, "definitions": definitions}


def build_v3(group: str, api_version: str, version: str) -> JSON:
    part = _load().v3[f"{group}/{api_version}"]
    return {
        "openapi": "3.0.0",
        "info": _info(version),
        "paths": part["paths"],
        "components": {"schemas": part["schemas"]},
    }


def build_root(specifications: Mapping[str, Callable[[], bytes]]) -> JSON:
    """Return the document that says where the specifications are, by path without a slash in front."""
    paths = {}
    for path, encode in sorted(specifications.items()):
        digest = hashlib.sha256(encode()).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def _info(version: str) -> JSON:
    return {"title": "fastpath-adapter", "version": version}
