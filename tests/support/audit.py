"""A cluster that notes the author of each write, and the holder of the lease at that moment.

The lease is that of the write's namespace, named ``fastpath``. A caller's token is its identity, and so is a
holder's.
"""

import asyncio
from typing import NamedTuple

from aiohttp import web

from adapter.sandbox.apiserver.cluster import Cluster


class Written(NamedTuple):
    """One write that the cluster has made, at a time of the loop."""

    at: float
    what: str
    by: str
    holder: str


class AuditedCluster(Cluster):
    """Notes each write but those of leases.

    Between a write and its note nothing else can happen: there is no await.
    """

    def __init__(self) -> None:
        self._admitted: dict[str, str] = {}
        super().__init__(tokens=self._admitted)
        self.audit: dict[str, list[Written]] = {}

    def admit(self, identity: str) -> None:
        """Admit a user whose token is its identity."""
        self._admitted[identity] = identity

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await super()._handle(request)
        _, _, rest = request.path.partition("/namespaces/")
        namespace, _, what = rest.partition("/")
        if request.method != "GET" and answer.status < 300 and not what.startswith("leases"):
            token = request.headers["Authorization"].removeprefix("Bearer ")
            lease = self.store.get(("coordination.k8s.io", "leases"), namespace, "fastpath")
            holder = lease.document["spec"]["holderIdentity"] if lease is not None else ""
            now = asyncio.get_running_loop().time()
            self.audit.setdefault(namespace, []).append(Written(now, what, token, holder))
        return answer
