"""A Scale, and the part of a CustomResourceDefinition that says where objects keep what a Scale shows: from JSON.

Not here: which of them are read, and when (`targets`, `targetkinds`). The law: unknown fields are ignored, absent ones have the API's defaults.
"""

import msgspec

from adapter.kubernetes.cache import scale_codec
from adapter.kubernetes.cache.scale_codec import Seen
from adapter.kubernetes.codec import Form
from adapter.model.autoscaling.hpa import Int32


class _Wire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of what is decoded."""


class _ScaleMetadata(_Wire, frozen=True):
    resource_version: str = ""
    uid: str = ""


class _ScaleSpec(_Wire, frozen=True):
    replicas: Int32 = 0


class _ScaleStatus(_Wire, frozen=True):
    replicas: Int32 = 0
    selector: str = ""


class _Scale(_Wire, frozen=True):
    metadata: _ScaleMetadata = _ScaleMetadata()
    spec: _ScaleSpec = _ScaleSpec()
    status: _ScaleStatus = _ScaleStatus()


class _ScaleSubresource(_Wire, frozen=True):
    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str = ""


class _Subresources(_Wire, frozen=True):
    scale: _ScaleSubresource | None = None


class _Version(_Wire, frozen=True):
    name: str = ""
    subresources: _Subresources | None = None


class _DefinitionSpec(_Wire, frozen=True):
    versions: tuple[_Version, ...] = ()


class _Definition(_Wire, frozen=True):
    spec: _DefinitionSpec = _DefinitionSpec()


_SCALE = msgspec.json.Decoder(_Scale)
_DEFINITION = msgspec.json.Decoder(_Definition)


def read_form(definition: bytes, version: str) -> Form[Seen] | None:
    """Return the form of a custom kind, None where its definition does not say plainly where the replicas are.

    One of `objectlist.UNREADABLE` for what is no definition.
    """
    for each in _DEFINITION.decode(definition).spec.versions:
        scale = each.subresources.scale if each.subresources else None
        if each.name == version and scale is not None:
            written = scale.spec_replicas_path, scale.status_replicas_path, scale.label_selector_path
            paths = scale_codec.parse_paths(*written)
            return None if paths is None else scale_codec.custom(paths)
    return None


def read_scale(scale: bytes, namespace: str, name: str) -> Seen:
    """Return what a Scale says of an object; it does not say who wrote the count. One of `objectlist.UNREADABLE` for what is no Scale."""
    read = _SCALE.decode(scale)
    state, meta = read.status, read.metadata
    return Seen(
        namespace,
        name,
        read.spec.replicas,
        state.replicas,
        state.selector,
        meta.resource_version,
        "",
        meta.uid,
    )
