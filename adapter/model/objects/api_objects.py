"""The base of API objects, and the metadata that is read of them."""

from collections.abc import Mapping

import msgspec


class Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of API objects: camelCase names, frozen, defaults not written.

    Hidden from the garbage collector: ten thousand autoscalers would keep it busy, and what is frozen
    refers to nothing that refers back.
    """


class ObjectMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class Metadata(ObjectMeta, frozen=True):
    """Metadata as the scaler uses it: `uid` for events, `resource_version` for writes."""

    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class DescribedObject(Struct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
