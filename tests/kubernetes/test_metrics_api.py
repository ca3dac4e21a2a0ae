"""Asking another adapter through the API server, as data: paths, values, and everything that goes wrong.

`scripts/metrics-api` has what happens after `> `, in a cluster where custom.metrics.k8s.io/v1beta2,
external.metrics.k8s.io/v1beta1 and metrics.k8s.io/v1beta1 are registered for one adapter:

- `register VERSION.GROUP PRIORITY`, `deregister VERSION.GROUP ...`, and `forbid GROUP`: its discovery may not
  be read.
- `answer BODY`, `refuse CODE REASON MESSAGE`, `status CODE BODY` and `missing VERSION` say what the adapter
  answers.
- `ask NAME` asks one of the questions, `ask all` each of them, `object NAME` for a Service of this name, and
  `together COUNT` for that many lists of usages at a time. `alone VERSION` reads this version of
  metrics.k8s.io only.

Below it are the requests to the adapter with their numbers of slashes, question marks and hashes, the looks
at discovery, and the values or the error.
`scripts/test tests/kubernetes/test_metrics_api.py --update` writes what happens now.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.errors import KubernetesError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.metrics_api import MetricsAPI
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.clock import FakeClock
from tests.support.scripts import Scripts
from tests.support.tls import Authority

SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "metrics-api")
REGISTERED = ("v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io", "v1beta1.metrics.k8s.io")
DEEP = '{"items": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}"

Ask = Callable[[MetricsAPI], Awaitable[Sequence[Any]]]

QUESTIONS: dict[str, Ask] = {
    "selected pods": lambda api: api.pods("shop", "load", "app=web,tier in (a,b)", "queue=a"),
    "pods": lambda api: api.pods("shop", "http_requests/s", "", ""),
    "ingress": lambda api: api.described("Ingresses.networking.k8s.io", "shop", "Main", "Hits", "a=b"),
    "namespace": lambda api: api.described("namespaces", "shop", "shop", "hits", ""),
    "external": lambda api: api.external("shop", "Queue_Depth", "a=b"),
    "resource": lambda api: api.resource("shop", "app=web"),
}


def said_of(value: Any) -> str:
    """Return all that is read of a value."""
    if hasattr(value, "containers"):
        used = [
            f"{name} {quantity.milli}m"
            for container in value.containers or ()
            for name, quantity in (container.usage or {}).items()
        ]
        return (
            f"{value.metadata.name} at {value.timestamp} over {value.window}: {', '.join(used) or 'unused'}"
        )
    if hasattr(value, "described_object"):
        return f"{value.described_object.name} {value.value.milli}m at {value.timestamp} over {value.span}"
    return f"{value.value.milli}m at {value.timestamp} over {value.window}"


class MetricsScript:
    """A cluster, the adapter behind its API server, the client, and what is said of them."""

    def __init__(self, cluster: Cluster, client: KubernetesClient) -> None:
        self.cluster = cluster
        self.client = client
        self.clock = FakeClock()
        self.api = MetricsAPI(client, self.clock)
        self.port = 0
        self.said: list[str] = []
        self._status, self._body, self._missing = 200, "{}", ""

    async def handle(self, request: web.Request) -> web.Response:
        # what a path or a query may hold both plainly and escaped is the same to every server
        segments = request.raw_path.count("/"), request.raw_path.count("?"), request.raw_path.count("#")
        self.said.append(f"  {unquote(request.raw_path)} {segments}")
        if request.path.split("/")[3] == self._missing:
            return web.Response(status=404, text="404 page not found")
        return web.Response(status=self._status, text=self._body, content_type="application/json")

    def register(self, name: str, priority: int = 100) -> None:
        version, _, group = name.partition(".")
        spec = {
            "group": group,
            "versionPriority": priority,
            "version": version,
            "service": {"name": "adapter", "namespace": "outside", "port": self.port},
            "insecureSkipTLSVerify": True,
        }
        kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
        self.cluster.create({**kind, "metadata": {"name": name}, "spec": spec})

    async def ask(self, ask: Ask) -> None:
        self.cluster.requests.clear()
        try:
            values = await ask(self.api)
        except KubernetesError as error:
            text = str(error).partition("not a list of values")
            answered = [f"fails: {error.status} {error.reason}: {text[0]}{text[1]}"]
        else:
            answered = list(map(said_of, values)) or ["nothing"]
        looks = [each.path for each in self.cluster.requests if re.fullmatch("/apis/[^/]*", each.path)]
        self.said += [f"  {'  '.join(looks)}"] * bool(looks) + answered

    async def happen(self, verb: str, rest: str) -> None:
        match verb:
            case "register":
                name, priority = rest.split(" ")
                self.register(name, int(priority))
            case "deregister":
                for name in rest.split(" "):
                    self.cluster.delete("APIService", name)
            case "forbid":
                self.cluster.faults.forbidden_paths.add(f"/apis/{rest}")
            case "alone":
                self.api = MetricsAPI(self.client, self.clock, (rest,))
            case "object":
                await self.ask(lambda api: api.described("services", "shop", rest, "hits", ""))
            case "together":
                await self.ask(lambda api: self.together(api, int(rest)))
            case "ask":
                for name in QUESTIONS if rest == "all" else [rest]:
                    await self.ask(QUESTIONS[name])
            case _:
                self.set(verb, rest)

    @staticmethod
    async def together(api: MetricsAPI, count: int) -> Sequence[Any]:
        answers = await asyncio.gather(*(api.resource("shop", "app=web") for _ in range(count)))
        return [value for values in answers for value in values]

    def set(self, verb: str, rest: str) -> None:
        """Say what the adapter answers, or let time pass."""
        if verb == "wait":
            self.clock.advance(float(rest))
        elif verb == "missing":
            self._missing = rest
        elif verb == "answer":
            self._status, self._body = 200, DEEP if rest == "DEEP" else rest
        elif verb == "status":
            code, _, self._body = rest.partition(" ")
            self._status = int(code)
        else:
            code, reason, message = rest.split(" ", 2)
            self._status = int(code)
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self._status}
            self._body = json.dumps({**status, "message": message, "reason": reason})


async def run(lines: list[str], authority: Authority) -> list[str]:
    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    async with Cluster() as cluster:
        configuration = credentials.ClientConfiguration(cluster.url)
        connecting = kubernetes.connect(configuration, sleep=no_pause, random=lambda: 0.0, timeout=5.0)
        async with await connecting as client:
            script = MetricsScript(cluster, client)
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", script.handle)
            context = authority.server_context()
            context.verify_mode = ssl.CERT_NONE
            server = TestServer(app, host="127.0.0.1", scheme="https")
            await server.start_server(ssl=context, shutdown_timeout=0.1)
            script.port = server.port or 0
            named = {"name": "adapter", "namespace": "outside"}
            spec = {"type": "ExternalName", "externalName": "localhost"}
            cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": spec})
            for name in REGISTERED:
                script.register(name)
            try:
                for line in lines:
                    script.said.append(f"> {line}")
                    verb, _, rest = line.partition(" ")
                    await script.happen(verb, rest)
            finally:
                await server.close()
    return script.said


@pytest.mark.parametrize("title", SCRIPTS.titles)
def test_script(title: str, authority: Authority, pytestconfig: pytest.Config) -> None:
    SCRIPTS.check(title, asyncio.run(run(SCRIPTS.lines(title), authority)), pytestconfig)
