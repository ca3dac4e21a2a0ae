"""A cluster that notes the author of each write, and the holder of the lease at that moment.

The lease is that of the write's namespace, named ``fastpath``. A caller's token is its identity, and so is a
holder's.
"""

from collections import Counter
from typing import NamedTuple

from aiohttp import web

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.store import Change

_LEASES = ("coordination.k8s.io", "leases")


class Written(NamedTuple):
    """One write that the cluster has made."""

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
        self.releases = Counter[str]()
        """How often the holder of a namespace's lease gave it up."""
        self.store.subscribe(_LEASES, self._count_release)

    def admit(self, identity: str) -> None:
        """Admit a user whose token is its identity."""
        self._admitted[identity] = identity

    def _count_release(self, change: Change) -> None:
        if change.new is not None and not change.new.document["spec"].get("holderIdentity"):
            self.releases[change.new.namespace] += 1

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await super()._handle(request)
        _, _, rest = request.path.partition("/namespaces/")
        namespace, _, what = rest.partition("/")
        if request.method != "GET" and answer.status < 300 and not what.startswith("leases"):
            token = request.headers["Authorization"].removeprefix("Bearer ")
            lease = self.store.get(_LEASES, namespace, "fastpath")
            holder = lease.document["spec"]["holderIdentity"] if lease is not None else ""
            self.audit.setdefault(namespace, []).append(Written(what, token, holder))
        return answer
