"""The names of all namespaces, from which the API server can tell the objects of a scaler's slices.

It filters by ranges of the hash of a namespace (`shardSelector`, KEP-5866), and a slice is no range. But a
single namespace is one. See `scope.Coverage`.
"""

from collections.abc import Iterator
from dataclasses import replace

from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scope import SliceScope
from adapter.kubernetes.cache.store import ObjectCache
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata
from adapter.model.resources import known_kind

_NAMESPACES = known_kind("v1", "Namespace", namespaced=False)


class NamespaceNames(ObjectCache[PartialMetadata]):
    """Tells a scope which namespaces there are, while `run` runs."""

    def __init__(self, watching: ReflectorContext, scope: SliceScope) -> None:
        self._scope = scope
        watching = replace(watching, scope=None)
        super().__init__(watching, self._follow, same=lambda *_: True, listed=self._end_list)
        self.reflect(PARTIAL_METADATA, _NAMESPACES)
        scope.names_attempted = self.reflector.attempted

    def _follow(self, _: str, name: str) -> None:
        self._scope.note_namespace(name, exists=self.find("", name) is not None)

    def _end_list(self) -> Iterator[None]:
        self._scope.know_namespaces()
        return iter(())
