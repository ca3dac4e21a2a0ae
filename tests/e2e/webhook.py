"""A validating webhook that holds or refuses what a test wants the API server not to store."""

import asyncio
import base64

from aiohttp import web

from fastpath_sandbox.listener import Listener
from tests.support.tls import Authority
from tests.world.clusters import ClusterUnderTest, Document

_NAME = "gate.e2e.fastpath.io"


class UpdateGate(Listener):
    """Updates of one resource in a test's namespace wait while it is closed, and fail while it refuses."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(self._handle, "127.0.0.1", 0, authority.server_context())
        self.asked: list[Document] = []
        """The requests so far, those that wait too."""
        self.refuses = False
        self.is_open = asyncio.Event()
        self._bundle = base64.b64encode(authority.file.read_bytes()).decode()

    async def stand(self, cluster: ClusterUnderTest, group: str, resource: str) -> None:
        """Have the API server ask about updates of a resource; return when it does."""
        rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]}
        hook = {
            "name": _NAME,
            "clientConfig": {"url": f"{self.url}/", "caBundle": self._bundle},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}},
            "sideEffects": "None",
            "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1"],
        }
        await cluster.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": cluster.namespace},
                "webhooks": [hook],
            }
        )

    async def leave(self, cluster: ClusterUnderTest) -> None:
        await cluster.kubectl("delete", "validatingwebhookconfiguration", cluster.namespace)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        review = await request.json()
        self.asked.append(review["request"])
        await self.is_open.wait()
        response = {"uid": review["request"]["uid"], "allowed": not self.refuses}
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )
