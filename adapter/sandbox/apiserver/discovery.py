"""The discovery documents of the sandbox cluster, legacy and aggregated.

Both forms are computed from the table of kinds at every request, so they agree, and a kind that is added at
run time appears at once.
"""

from typing import Any

from adapter.sandbox.apiserver.storage.kinds import SUBRESOURCE_VERBS, Kind, KindTable

JSON = dict[str, Any]
AGGREGATED_VERSIONS = ("v2", "v2beta1")


def core_versions(address: str) -> JSON:
    """Return the document of /api."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(kinds: KindTable, others: dict[str, list[str]]) -> JSON:
    """Return the document of /apis; `others` are the groups and versions of APIServices."""
    groups = [_group(name, versions) for name, versions in (kinds.groups() | others).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(kinds: KindTable, name: str, others: dict[str, list[str]]) -> JSON | None:
    """Return the document of /apis/GROUP, or None for an unknown group; `others` as in `group_list`."""
    versions = (kinds.groups() | others).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def _group(name: str, versions: list[str]) -> JSON:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def resource_list(kinds: KindTable, group_name: str, version: str) -> JSON | None:
    """Return the document of a group version, or None for an unknown one."""
    found = kinds.of(group_name, version)
    if not found:
        return None
    resources = [entry for kind in found for entry in (_resource(kind), *_subresources(kind))]
    document: JSON = {"kind": "APIResourceList"}
    if group_name:
        document["apiVersion"] = "v1"
    group_version = f"{group_name}/{version}" if group_name else version
    return document | {"groupVersion": group_version, "resources": resources}


def _resource(kind: Kind) -> JSON:
    entry: JSON = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return entry


def _subresources(kind: Kind) -> list[JSON]:
    entries = []
    for name in kind.subresources:
        entry: JSON = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        if name == "scale":
            entry |= {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        else:
            entry["kind"] = kind.kind
        entries.append(entry | {"verbs": ["update"] if name == "finalize" else list(SUBRESOURCE_VERBS)})
    return entries


def aggregated(kinds: KindTable, version: str, *, core: bool, stale: frozenset[tuple[str, str]]) -> JSON:
    """Return the APIGroupDiscoveryList of /api (`core`) or /apis; `stale` versions have no resources."""
    groups = {"": ["v1"]} if core else kinds.groups()
    items = []
    for name, versions in groups.items():
        entries = [_group_version(kinds, name, entry, is_stale=(name, entry) in stale) for entry in versions]
        metadata: JSON = {"creationTimestamp": None}
        if name:
            metadata["name"] = name
        items.append({"metadata": metadata, "versions": entries})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _group_version(kinds: KindTable, group_name: str, version: str, *, is_stale: bool) -> JSON:
    if is_stale:
        return {"version": version, "freshness": "Stale"}
    return {
        "version": version,
        "resources": [_aggregated_resource(kind) for kind in kinds.of(group_name, version)],
        "freshness": "Current",
    }


def _aggregated_resource(kind: Kind) -> JSON:
    own = {"group": kind.group, "version": kind.version} if kind.custom else {"group": "", "version": ""}
    entry: JSON = {
        "resource": kind.plural,
        "responseKind": own | {"kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    subresources = []
    for name in kind.subresources:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        response = scale if name == "scale" else own | {"kind": kind.kind}
        verbs = ["update"] if name == "finalize" else list(SUBRESOURCE_VERBS)
        subresources.append({"subresource": name, "responseKind": response, "verbs": verbs})
    if subresources:
        entry["subresources"] = subresources
    return entry
