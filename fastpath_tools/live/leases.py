"""The Leases of Fastpath's scaler, which may run in another namespace than the server."""

import asyncio
import itertools
from collections.abc import Callable
from urllib.parse import quote

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.model.autoscaling import shards
from adapter.model.autoscaling.shards import WHOLE, Shard
from fastpath_tools.live import reading
from fastpath_tools.live.api_objects import ItemList, LeaseDocument, NamedDocument
from fastpath_tools.live.facts import Leader, Leaders, Unread

_NAMESPACES = 100
"""In how many namespaces Leases are looked for if they may not be listed in all at once."""


class LeaseReader:
    """Finds Leases by name; `namespace` is that of Fastpath's Service."""

    def __init__(
        self, client: KubernetesClient, namespace: str, name: str, age: Callable[[int | None], float | None]
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._age = age

    async def find(self, namespace: str) -> Leaders | Unread:
        """Return the Leases of Fastpath's scaler in all namespaces.

        If these may not be listed: in each of those that may be, `namespace` among them.
        """
        whole = await self._list("")
        if not isinstance(whole, Unread):
            return Leaders(whole)
        places = dict.fromkeys((self._namespace, namespace, *await self._names()))
        names = [*filter(None, places)]
        read = await asyncio.gather(*map(self._list, names))
        listed = {name: each for name, each in zip(names, read, strict=True) if not isinstance(each, Unread)}
        if not listed:
            return whole
        return Leaders(tuple(itertools.chain.from_iterable(listed.values())), tuple(listed), whole.why)

    @reading.once
    async def _names(self) -> tuple[str, ...]:
        """Return the names of the first namespaces, none if they may not be listed."""
        try:
            found = await reading.fetch(
                self._client, f"/api/v1/namespaces?limit={_NAMESPACES}", ItemList[NamedDocument]
            )
        except KubernetesError:
            return ()
        return tuple(each.metadata.name for each in found.items)

    @reading.once
    async def _list(self, namespace: str) -> tuple[Leader, ...] | Unread:
        """Return the Leases of Fastpath's scaler in a namespace, in all with "". Those of nodes are many."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        selector = quote("metadata.namespace!=kube-node-lease")
        path = f"/apis/coordination.k8s.io/v1{within}/leases?fieldSelector={selector}"
        try:
            leases = (await reading.fetch(self._client, path, ItemList[LeaseDocument])).items
        except KubernetesError as error:
            return Unread(reading.why(error))
        return tuple(
            Leader(
                f"{each.metadata.namespace}/{each.metadata.name}",
                each.spec.holder_identity or "",
                self._age(each.spec.renew_time),
                float(each.spec.lease_duration_seconds or 0),
                shard,
            )
            for each in leases
            if (shard := _shard_of(each.metadata.name, self._name)) is not None
        )


def _shard_of(lease: str, name: str) -> Shard | None:
    """Return the shard whose Lease this is, None for a Lease of another program."""
    if lease == name:
        return WHOLE
    try:
        shard = shards.parse_shard(lease.removeprefix(f"{name}-").replace("-of-", "/"))
    except ValueError:
        return None
    return shard if shard.lease_name(name) == lease else None
