"""What runs in pods: a workload, a source of load, and the discovery of Prometheus.

A workload listens after `START_SECONDS`. It answers `/wait?ms=N` after N ms and `/burn?ms=N` after N ms of
processor time, `CONCURRENCY` requests at once; others wait. `/queue?depth=N` sets a gauge. A source of load
sends `/load?rate=N&url=URL` N requests a second, however late they are answered. `/discover/pods` lists pods
with a port named metrics, and `/discover/nodes` kubelets, as http_sd_configs of Prometheus read them.
"""

import asyncio
import json
import os
import ssl
import time
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client import Counter, Gauge, generate_latest

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
INFLIGHT = Gauge("inflight", "Requests that are not answered yet.")
REQUESTS = Counter("http_requests", "Requests.")
QUEUE = Gauge("queue_depth", "Messages that wait.", ["queue"])
ROOM = asyncio.Semaphore(int(os.environ.get("CONCURRENCY", "1000")))
LOAD = web.AppKey("load", dict[str, Any])


async def work(request: web.Request) -> web.Response:
    seconds = float(request.query.get("ms", "0")) / 1000
    REQUESTS.inc()
    with INFLIGHT.track_inprogress():
        async with ROOM:
            if request.path == "/wait":
                await asyncio.sleep(seconds)
            ends = time.process_time() + (seconds if request.path == "/burn" else 0)
            while time.process_time() < ends:
                pass
    return web.Response()


async def metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": "text/plain; version=0.0.4"})


async def set_queue(request: web.Request) -> web.Response:
    QUEUE.labels("mails").set(float(request.query["depth"]))
    return web.Response()


async def set_load(request: web.Request) -> web.Response:
    """Say what became of the load since it was set last, and go on with another one."""
    load = request.app[LOAD]
    counts = {key: load[key] for key in ("sent", "answered", "failed")}
    load.update(dict.fromkeys(counts, 0), **request.query)
    return web.json_response(counts)


async def send(app: web.Application) -> None:
    load = app[LOAD]
    pending: set[asyncio.Task[None]] = set()
    timeout, connector = aiohttp.ClientTimeout(30), aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def one(url: str) -> None:
            load["sent"] += 1
            try:
                async with session.get(url) as response:
                    load["answered" if response.status == 200 else "failed"] += 1
            except (aiohttp.ClientError, TimeoutError):
                load["failed"] += 1

        while True:
            rate = float(load.get("rate", 0))
            await asyncio.sleep(1 / rate if rate else 0.1)
            if rate:
                pending.add(task := asyncio.create_task(one(load["url"])))
                task.add_done_callback(pending.discard)


async def discover(request: web.Request) -> web.Response:
    what = request.match_info["what"]
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{server}/api/v1/{what}", ssl=trust) as answer,
    ):
        items = json.loads(await answer.read())["items"]
    return web.json_response(list(map(node, items)) if what == "nodes" else [*filter(None, map(pod, items))])


def node(found: dict[str, Any]) -> dict[str, Any]:
    address = next(each["address"] for each in found["status"]["addresses"] if each["type"] == "InternalIP")
    return {"targets": [f"{address}:10250"], "labels": {"node": found["metadata"]["name"]}}


def pod(found: dict[str, Any]) -> dict[str, Any] | None:
    metadata, status = found["metadata"], found["status"]
    ports = [port for container in found["spec"]["containers"] for port in container.get("ports", ())]
    targets = [
        f"{status.get('podIP')}:{port['containerPort']}" for port in ports if port.get("name") == "metrics"
    ]
    if status["phase"] != "Running" or not targets:
        return None
    return {"targets": targets, "labels": {"namespace": metadata["namespace"], "pod": metadata["name"]}}


async def start(_: web.Application) -> None:
    await asyncio.sleep(float(os.environ.get("START_SECONDS", "0")))


async def sending(app: web.Application) -> Any:
    task = asyncio.create_task(send(app))
    yield
    task.cancel()


def main() -> None:
    app = web.Application()
    app[LOAD] = {"sent": 0, "answered": 0, "failed": 0}
    app.router.add_get("/wait", work)
    app.router.add_get("/burn", work)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/queue", set_queue)
    app.router.add_get("/load", set_load)
    app.router.add_get("/discover/{what}", discover)
    app.on_startup.append(start)
    app.cleanup_ctx.append(sending)
    web.run_app(app, port=8080, print=None, shutdown_timeout=2)


main()
