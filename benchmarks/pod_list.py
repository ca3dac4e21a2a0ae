"""An API server that serves whole pods only.

    python -m benchmarks.pod_list PORTFILE PODS PODS_PER_APP OWNER EVENTS

It answers the list of all pods, in one body as from a watch cache, and a watch that sends EVENTS pods that
became unready, as fast as the client reads. Objects are about as large as real ones, with fields that the
adapter does not read. Runs until it is ended.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from benchmarks import bare
from benchmarks.stage import App, make_apps

_TIME = "2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def pod(app: App, number: int, name: str, owner: str, *, ready: bool = True) -> dict[str, Any]:
    """Return a pod of an app; its address and age follow from `number`, its place among all pods."""
    labels = {"app": app.name, "app.kubernetes.io/instance": app.name, "app.kubernetes.io/version": "1.4.2"}
    if owner == "StatefulSet":
        labels["controller-revision-hash"] = f"{app.name}-7c9f8d6b5"
        labels["statefulset.kubernetes.io/pod-name"] = name
    else:
        labels["pod-template-hash"] = "7c9f8d6b5"
    minutes, second = divmod(number * 7 % 2_500_000, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    time = _TIME.format(day=day + 1, hour=hour, minute=minute, second=second)
    keys: dict[str, Any] = {
        f'k:{{"type":"{kind}"}}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}} for kind in "ABCDEF"
    }
    fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:conditions": keys}}}
    managed = [
        {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time} | fields
        for manager in ("kube-controller-manager", "kubelet")
    ]
    token = {"name": f"kube-api-access-{number:05}"}
    container = {
        "name": app.name,
        "image": f"registry.example.com/team/{app.name}@sha256:{number % 7:064}",
        "env": [{"name": f"SETTING_{index}", "value": f"value of setting {index}"} for index in range(20)],
        "ports": [
            {"name": "http", "containerPort": 8080, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9090},
        ],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [token | {"mountPath": "/var/run/secrets", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
    }
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": time}
        for kind in ("Initialized", "ContainersReady", "PodScheduled")
    ]
    conditions.append({"type": "Ready", "status": str(ready), "lastTransitionTime": time})
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    owned = {"apiVersion": "apps/v1", "kind": owner, "name": app.name, "controller": True}
    ran = {"name": app.name, "ready": ready, "containerID": f"containerd://{number:064x}"}
    return {
        "metadata": {
            "name": name,
            "generateName": f"{app.name}-7c9f8d6b5-",
            "namespace": app.namespace,
            "uid": f"6f4b1f9c-5f7e-4a55-9a3c-{number:012x}",
            "resourceVersion": str(1000 + number + (not ready) * 1_000_000),
            "creationTimestamp": time,
            "labels": labels,
            "ownerReferences": [owned],
            "managedFields": managed,
        },
        "spec": {
            "containers": [container],
            "nodeName": f"node-{number % 1000}",
            "volumes": [token | {"projected": {"sources": [{"serviceAccountToken": {}}]}}],
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "effect": "NoExecute"} for key in ("not-ready", "gone")
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": "192.0.2.7",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": time,
            "containerStatuses": [ran],
        },
    }


def encode_pods(pods: int, pods_per_app: int, owner: str, *, ready: bool = True) -> Iterator[bytes]:
    number = 0
    for app in make_apps(-(-pods // pods_per_app), pods_per_app):
        for name in app.pods:
            if number < pods:
                yield json.dumps(pod(app, number, name, owner, ready=ready), separators=(",", ":")).encode()
                number += 1


class PodList:
    """The responses; each is encoded again while it is sent."""

    def __init__(self, pods: int, pods_per_app: int, owner: str, events: int) -> None:
        self._pods = (pods, pods_per_app, owner)
        self._events = events

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a list, or a watch that stays open."""
        response = await bare.begin(request)
        if "watch" in request.query:
            late = itertools.islice(encode_pods(*self._pods, ready=False), self._events)
            await bare.send(response, (b'{"type":"MODIFIED","object":' + text + b"}\n" for text in late))
            await asyncio.Event().wait()
        await response.write(bare.PODS)
        await bare.send(response, bare.separated(encode_pods(*self._pods)))
        await response.write(b"]}\n")
        await response.write_eof()
        return response


if __name__ == "__main__":
    pods = PodList(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], events=int(sys.argv[5]))
    uvloop.run(bare.listen(pods.answer, Path(sys.argv[1])))
