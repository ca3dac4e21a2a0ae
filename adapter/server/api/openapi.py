"""The OpenAPI specifications of the served groups, which kube-aggregator and kubectl read.

The specifications are data, generated from one table into openapi.json beside this module
(`tests.support.openapi`) and filtered here by the groups that are served. They do not depend on the metrics
there are: every change of a specification makes kube-aggregator merge those of the whole cluster again.
"""

import functools
from collections.abc import Iterable, Mapping
from importlib import resources

import msgspec

from adapter.server.api.paths import VERSIONS

JSON = dict[str, object]


class _Specification(msgspec.Struct):
    """Paths and schemas by group and version of the API, for either version of OpenAPI."""

    v2: dict[str, dict[str, JSON]]
    v3: dict[str, dict[str, JSON]]


@functools.cache
def _load() -> _Specification:
    text = resources.files(__package__).joinpath("openapi.json").read_bytes()
    return msgspec.json.decode(text, type=_Specification)


def build_v2(groups: Iterable[str], version: str) -> JSON:
    """Return the Swagger 2.0 document of all groups; `version` is the program's."""
    paths: JSON = {}
    definitions: JSON = {}
    for group in groups:
        for api_version in VERSIONS[group]:
            part = _load().v2[f"{group}/{api_version}"]
            paths |= part["paths"]
            definitions |= part["definitions"]
    return {"swagger": "2.0", "info": _info(version), "paths": paths, "definitions": definitions}


def build_v3(group: str, api_version: str, version: str) -> JSON:
    """Return the OpenAPI 3.0 document of one group-version."""
    part = _load().v3[f"{group}/{api_version}"]
    return {
        "openapi": "3.0.0",
        "info": _info(version),
        "paths": part["paths"],
        "components": {"schemas": part["schemas"]},
    }


def build_root(hashes: Mapping[str, str]) -> JSON:
    """Return the document that says where the specifications are.

    `hashes` by path without a slash in front.
    """
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashes[path]}"} for path in sorted(hashes)
        }
    }


def _info(version: str) -> JSON:
    return {"title": "fastpath-adapter", "version": version}
