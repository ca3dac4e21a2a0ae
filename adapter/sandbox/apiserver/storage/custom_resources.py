"""CustomResourceDefinitions: the kinds that a definition adds, and its status.

A definition takes effect when it is created. Its schema is ignored: nothing is pruned, defaulted or
validated.
"""

from typing import Any

from adapter.sandbox.apiserver import status
from adapter.sandbox.apiserver.storage.kinds import Kind, ScalePaths
from adapter.sandbox.apiserver.storage.store import JSON, KindKey

KEY: KindKey = ("apiextensions.k8s.io", "customresourcedefinitions")


def definition(
    group: str,
    version: str,
    plural: str,
    kind: str,
    *,
    short_names: tuple[str, ...] = (),
    scale: ScalePaths | None = None,
) -> JSON:
    """Return a definition of a namespaced kind with a status and, optionally, a scale subresource."""
    subresources: JSON = {"status": {}}
    if scale is not None:
        subresources["scale"] = {
            "specReplicasPath": scale.spec_replicas,
            "statusReplicasPath": scale.status_replicas,
        }
        if scale.selector:
            subresources["scale"]["labelSelectorPath"] = scale.selector
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names | ({"shortNames": list(short_names)} if short_names else {}),
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": schema,
                    "subresources": subresources,
                }
            ],
        },
    }


FASTPATH_AUTOSCALERS = definition(
    "fastpath.io", "v1alpha1", "fastpathautoscalers", "FastPathAutoscaler", short_names=("fpa",)
)
"""The FastPathAutoscaler without its schema: ``cluster.create(FASTPATH_AUTOSCALERS)``."""


def kinds_of(document: JSON) -> list[Kind]:
    """Return the kinds of a definition: one, since `check` refuses more."""
    spec = document["spec"]
    names = spec["names"]
    return [
        Kind(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            tuple(sorted(version.get("subresources") or {})),
            generation=True,
            must_carry_version=True,
            custom=True,
            scale=_scale_paths((version.get("subresources") or {}).get("scale")),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def _scale_paths(scale: JSON | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath") or ""
    )


def check(document: JSON) -> None:
    """Raise 422 for an invalid definition, 501 for one that only the real API server can serve."""
    name = document["metadata"]["name"]
    spec = document.get("spec") or {}
    names = spec.get("names") or {}
    versions = spec.get("versions") or []
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    required: list[tuple[str, Any]] = [
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.scope", spec.get("scope")),
        ("spec.versions", versions),
    ]
    for field, value in required:
        if not value:
            raise _invalid(name, field, "Required value", "FieldValueRequired")
    if name != wanted:
        message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        raise _invalid(name, "metadata.name", message, "FieldValueInvalid")
    if sum(bool(version.get("served")) for version in versions) > 1:
        raise status.not_built("serving a custom kind in several versions", "serve one of them")


def _invalid(name: str, field: str, message: str, reason: str) -> status.StatusFailure:
    return status.invalid(
        "CustomResourceDefinition", KEY[0], name, field=field, message=message, reason=reason
    )


def established(document: JSON) -> JSON:
    """Return the status of a definition in effect."""
    since = document["metadata"].get("creationTimestamp")
    conditions = [
        {"type": name, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}
        for name, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in document["spec"]["versions"] if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": document["spec"]["names"], "storedVersions": stored}
