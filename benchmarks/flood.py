"""Servers that flood their clients.

    python -m benchmarks.flood PORTFILE cluster|prometheus APPS PODS_PER_APP SIZE

`cluster` is an API server that has the pods of `make_apps` and allows every access. After a request for
`/flood`, its watches send SIZE relabelled pods as fast as the client reads. `prometheus` has one value for
each of these pods. After `/flood`, it answers a query for all of them with SIZE series. Both run until they
are ended.
"""

import asyncio
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import uvloop
from aiohttp import web

from benchmarks import bare, common
from benchmarks.stage import App, make_apps

METRIC = "flooded_requests"
_VERSIONS = ("1.4.2", "1.4.3")


class Cluster:
    """The documents and pods of a cluster; `flood` is set once its pods change."""

    def __init__(self, apps: list[App], changes: int) -> None:
        self._apps = apps
        self._changes = changes
        self._flood = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path:
            case "/flood":
                self._flood.set()
                return web.Response()
            case "/api" | "/apis" as path:
                verbs = {"verbs": ["get", "list", "watch"]}
                kinds = {"Pod": "Namespaced", "Node": "Cluster", "Namespace": "Cluster"}
                listed = [
                    {"resource": f"{kind.lower()}s", "responseKind": {"kind": kind}, "scope": scope} | verbs
                    for kind, scope in kinds.items()
                ]
                core = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": listed}]}
                form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                body = json.dumps({"items": [core] if path == "/api" else []}).encode()
                return web.Response(body=body, headers={"Content-Type": form})
            case "/api/v1/pods":
                return await self._send_pods(request)
        if request.method == "POST":  # a review
            asked = await request.json()
            user = {"username": "benchmark", "groups": ["system:authenticated"]}
            status = {"allowed": True, "authenticated": True, "user": user}
            return web.json_response(asked | {"status": status}, status=201)
        failure = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        return web.json_response(failure, status=404)

    async def _send_pods(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await bare.begin(request)
        if "watch" in request.query:
            await self._flood.wait()
            changed = (b'{"type":"MODIFIED","object":' + pod + b"}\n" for pod in self._pods(_VERSIONS[1]))
            await bare.send(response, itertools.islice(changed, self._changes))
            await asyncio.Event().wait()
        await response.write(bare.PODS)
        await bare.send(response, bare.separated(self._pods(_VERSIONS[0])))
        await response.write(b"]}\n")
        return response

    def _pods(self, version: str) -> Iterator[bytes]:
        for app in self._apps:
            labels = {"app": app.name, "version": version, "pod-template-hash": "7c9f8d6b5"}
            for name in app.pods:
                metadata = {"name": name, "namespace": app.namespace, "labels": labels}
                pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata | {"resourceVersion": "1000"}}
                yield json.dumps(pod).encode()


class Prometheus:
    """A gauge of every pod; once `flooding`, many more for a query of all pods."""

    def __init__(self, apps: list[App], series: int) -> None:
        self._namespaces = {pod: app.namespace for app in apps for pod in app.pods}
        others = range(max(0, series - len(self._namespaces)))
        time = common.wall()
        self._others = [
            _sample(f"other-7c9f8d6b5-{each:06}", f"team-{each % 1000:04}", time) for each in others
        ]
        self._flooding = False

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/flood":
            self._flooding = True
            return web.Response()
        response = await bare.begin(request)
        if request.path == "/api/v1/series":
            await response.write(b'{"status":"success","data":[')
            known = self._namespaces.items()
            series = (
                f'{{"__name__":"{METRIC}","namespace":"{ns}","pod":"{pod}"}}'.encode() for pod, ns in known
            )
            await bare.send(response, bare.separated(series))
            await response.write(b"]}")
            return response
        query = request.query.get("query") or str((await request.post()).get("query", ""))
        await response.write(b'{"status":"success","data":{"resultType":"vector","result":[')
        time = common.wall()
        found = re.search(r'\bpod=~?"([^"]*)"', query)
        wanted = self._namespaces if found is None else found[1].split("|")
        samples = (_sample(pod, self._namespaces[pod], time) for pod in wanted if pod in self._namespaces)
        more = self._others if self._flooding and found is None else []
        await bare.send(response, bare.separated(itertools.chain(samples, more)))
        await response.write(b"]}}")
        return response


def _sample(pod: str, namespace: str, time: float) -> bytes:
    return f'{{"metric":{{"namespace":"{namespace}","pod":"{pod}"}},"value":[{time:.3f},"1"]}}'.encode()


async def main(port_file: str, which: str, *sizes: str) -> None:
    count, pods, size = map(int, sizes)
    server = (Cluster if which == "cluster" else Prometheus)(make_apps(count, pods), size)
    await bare.listen(server.answer, Path(port_file))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
