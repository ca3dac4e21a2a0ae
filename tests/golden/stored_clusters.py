"""Clusters of one moment, for transcripts: `--kubeconfig=FILE:FILE` has the objects of these files.

So has `--lister-kubeconfig`. A document that names an object of an earlier one is merged into it. In later
objects `the-uid` is the real uid of the object that has it. Each Deployment has its pods, Ready 12 seconds
after their creation, unless the files have pods of an owner. Beside objects there are

- `kind: Answers`: `items` are bodies by path and query; metrics without one are not found,
- `kind: Forbidden`: `items` are verb, resource and, where it is forbidden in one place only, namespace,
- `kind: Denied`: `items` are users to which access reviews allow nothing.
"""

import functools
import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from aiohttp import web

from adapter.compose.clock import SystemClock
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from fastpath_sandbox.apiserver.patches import merge
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads
from fastpath_tools import slices
from fastpath_tools.live import cluster_options, scaler_access, servers
from fastpath_tools.live.cluster_options import KubeconfigOptions, ScalerServiceOptions
from scripts.generate import crd

METRICS = tuple(f"/apis/{group}metrics.k8s.io/" for group in ("", "custom.", "external."))
STARTUP = 12.0
UID = "the-uid"
TIMES = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def _key(document: dict[str, Any]) -> tuple[str, str, str]:
    metadata = document.get("metadata", {})
    return document["kind"], metadata.get("namespace", ""), metadata.get("name", "")


@functools.cache
def _definition() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(crd.PATH.read_text())
    return document


class StoredCluster(Cluster):
    def __init__(self, now: float) -> None:
        super().__init__(now=lambda: now)
        self._moment = now
        self._answers: dict[str, Any] = {}

    def load(self, files: Iterable[str]) -> None:
        documents: dict[tuple[str, str, str], dict[str, Any]] = {}
        for text in files:
            for document in yaml.load_all(text, yaml.CSafeLoader):
                earlier = documents.get(_key(document), {})
                documents[_key(document)] = merge(earlier, document)
        objects = {key: one for key, one in documents.items() if key[1:] != ("", "")}
        if any(key[0] == KIND for key in objects):
            self.create(_definition())
        uid = ""
        for document in objects.values():
            made = self.create(json.loads(json.dumps(document).replace(UID, uid)))
            if document["metadata"].get("uid") == UID:
                uid = made["metadata"]["uid"]
            if times := {name: document["metadata"][name] for name in TIMES if name in document["metadata"]}:
                self.store.put(self._kind_of(made).key, merge(made, {"metadata": times}))
        self._answers = documents.get(("Answers", "", ""), {}).get("items", {})
        for place in documents.get(("Forbidden", "", ""), {}).get("items", []):
            self.forbid(*place)
        denied = documents.get(("Denied", "", ""), {}).get("items", [])
        self.reviews.access = lambda spec: AccessReviewVerdict(spec.get("user", "") not in denied)
        if not any("ownerReferences" in one["metadata"] for one in objects.values() if one["kind"] == "Pod"):
            workloads = Workloads(self, startup=STARTUP)
            workloads.step(self._moment)
            workloads.step(self._moment + STARTUP)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = unquote(request.raw_path)
        answer = self._answers.get(path)
        if answer is None and path.startswith(METRICS):
            answer = {"kind": "Status", "message": "the metric is not found", "code": 404}
        if isinstance(answer, dict):
            return web.json_response(answer, status=answer.get("code", 200))
        if answer is not None:
            return web.Response(text=str(answer))
        return await super()._handle(request)


def _shown(server: str) -> dict[str, Any] | None:
    """Return what a scaler shows in the files of `http://FILE/FILE`; None if they are no files."""
    files = [Path(name) for name in server.removeprefix("http://").split("/")]
    if not all(file.is_file() for file in files):
        return None
    shown: dict[str, Any] = {}
    for file in files:
        shown |= yaml.load(file.read_text(), yaml.CSafeLoader)
    return shown


def serve_files(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    """Have files of the working folder be clusters ten minutes before `now`, and what a scaler shows."""
    real, fetch, open_real = cluster_options.connect, scaler_access.fetch, servers.open_servers

    @asynccontextmanager
    async def stored(names: str) -> AsyncIterator[str]:
        """Give the kubeconfig of the cluster of the named files."""
        files = [Path(name) for name in names.split(":")]
        async with StoredCluster(now - 600) as cluster:
            cluster.load(file.read_text() for file in files)
            yield str(cluster.kubeconfig(Path("kubeconfig")))

    @asynccontextmanager
    async def connect(options: KubeconfigOptions, **others: Any) -> AsyncIterator[Any]:
        async with (
            stored(options.kubeconfig) as kubeconfig,
            real(replace(options, kubeconfig=kubeconfig), **others) as client,
        ):
            yield client

    async def open_servers(names: str, *others: Any) -> Any:
        stack: AsyncExitStack = others[-1]
        return await open_real(names and await stack.enter_async_context(stored(names)), *others)

    async def fetch_file(options: ScalerServiceOptions, fastpath: str) -> dict[str, Any]:
        shown = _shown(options.server)
        return await fetch(options, fastpath) if shown is None else shown

    monkeypatch.setattr(cluster_options, "connect", connect)
    monkeypatch.setattr(servers, "open_servers", open_servers)
    monkeypatch.setattr(scaler_access, "fetch", fetch_file)
    monkeypatch.setattr(SystemClock, "monotonic", lambda _: 0.0)
    monkeypatch.setattr(slices, "time", SimpleNamespace(time=lambda: now))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)  # the system's authorities take a client 30 ms to load
