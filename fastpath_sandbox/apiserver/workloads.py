"""The controllers and kubelets of the sandbox cluster: pods follow the replicas of their Deployment.

`Workloads.step` looks at every Deployment and does what is due. The result depends on the cluster's objects
and `now` alone, so the same steps give the same pods. The caller decides when and how often to step.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from fastpath_sandbox.apiserver.objects import name_suffix, timestamp
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.store import JSON, Change, Record

_LETTERS = "bcdf2456789"
_CONTROLLER = "kube-controller-manager"
_ONCE_BOUND = ("PodScheduled", "Initialized")
"""The conditions that hold from the creation of a pod: each has a node at once, and no init containers."""


def pod_address(number: int) -> str:
    """Return the IP of a pod by its number, from 1. No program listens there."""
    return f"10.244.{number >> 8 & 255}.{number & 255}"


class _Pods(NamedTuple):
    """The pods of one ReplicaSet, oldest first."""

    ready: list[Record]
    starting: list[Record]


def deployment(
    name: str, namespace: str = "default", replicas: int = 1, labels: dict[str, str] | None = None
) -> JSON:
    """Return a Deployment whose pods have the labels ``app=NAME`` and `labels`."""
    labels = {"app": name} | (labels or {})
    container = {
        "name": name,
        "image": f"registry.example/{name}:1",
        "ports": [{"name": "http", "containerPort": 8080}],
    }
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


class Workloads:
    """Steps the Deployments of a cluster.

    A pod is created Pending, and Running and Ready `startup` seconds later; a function returns them for each
    pod. A changed template starts a new ReplicaSet; the old one is deleted when the new pods are ready.
    `address` gives a started pod its IP, by a number that no other pod has.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        startup: float | Callable[[], float] = 3.0,
        address: Callable[[int], str] = pod_address,
    ) -> None:
        self._cluster = cluster
        self._startup = startup
        self._address = address
        self._created = 0
        self._due: dict[str, float] = {}

    def step(self, now: float) -> None:
        """Advance every Deployment's pods; `now` is epoch seconds and never decreases."""
        for record in list(self._cluster.store.records(self._cluster.kinds.find("deployments").key)):
            self._step_deployment(record, now)

    def _step_deployment(self, record: Record, now: float) -> None:
        spec = record.document["spec"]
        wanted: int = spec["replicas"]
        current, old = self._replica_sets(record, wanted)
        self._start_pods(current, now)
        pods = self._pods_of(current)
        surplus = len(pods.ready) + len(pods.starting) - wanted
        for _ in range(-surplus):
            self._make_pod(current, spec["template"], now)
        for pod in [*pods.starting[::-1], *pods.ready[::-1]][: max(surplus, 0)]:
            self._cluster.delete("pods", pod.name, pod.namespace)
            self._due.pop(pod.document["metadata"]["uid"], None)
        if not self._startup:
            self._start_pods(current, now)
        pods = self._pods_of(current)
        if len(pods.ready) >= wanted:
            for replica_set in old:
                self._cluster.delete("replicasets", replica_set.name, replica_set.namespace)
            old = []
        self._write_status("replicasets", current, pods, _Pods([], []))
        before = [self._pods_of(replica_set) for replica_set in old]
        rest = _Pods(
            [pod for part in before for pod in part.ready], [pod for part in before for pod in part.starting]
        )
        self._write_status("deployments", record, pods, rest)

    def _replica_sets(self, record: Record, wanted: int) -> tuple[Record, list[Record]]:
        """Return the ReplicaSet of the present template, created or scaled as needed, and the former ones."""
        document = record.document
        revision = _letters(zlib.crc32(msgspec.json.encode(document["spec"]["template"], order="sorted")))
        name = f"{record.name}-{revision}"
        kind = self._cluster.kinds.find("replicasets")
        owned = [
            replica_set
            for key, replica_set in self._cluster.store.dependents(document["metadata"]["uid"])
            if key == kind.key
        ]
        old = [replica_set for replica_set in owned if replica_set.name != name]
        current = self._cluster.store.get(kind.key, record.namespace, name)
        if current is None:
            template = document["spec"]["template"]
            labels = (template.get("metadata", {}).get("labels") or {}) | {"pod-template-hash": revision}
            self._cluster.create(
                {
                    "kind": "ReplicaSet",
                    "apiVersion": "apps/v1",
                    "metadata": {
                        "name": name,
                        "namespace": record.namespace,
                        "labels": labels,
                        "ownerReferences": [_owner("Deployment", record)],
                    },
                    "spec": {"replicas": wanted, "selector": {"matchLabels": labels}, "template": template},
                },
                manager=_CONTROLLER,
            )
        elif current.document["spec"]["replicas"] != wanted:
            change = {"spec": {"replicas": wanted}}
            self._cluster.patch("replicasets", name, change, record.namespace, manager=_CONTROLLER)
        current = self._cluster.store.get(kind.key, record.namespace, name)
        assert current is not None
        return current, old

    def _pods_of(self, replica_set: Record) -> _Pods:
        owned = self._cluster.store.dependents(replica_set.document["metadata"]["uid"])
        pods = sorted(
            (pod for key, pod in owned if key == ("", "pods")),
            key=lambda pod: pod.document["metadata"]["uid"],
        )
        ready = [pod for pod in pods if pod.document["status"]["phase"] == "Running"]
        return _Pods(ready, [pod for pod in pods if pod.document["status"]["phase"] == "Pending"])

    def _make_pod(self, replica_set: Record, template: JSON, now: float) -> None:
        self._created += 1
        pod = self._cluster.create(
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {
                    "name": f"{replica_set.name}-{name_suffix(self._created)}",
                    "namespace": replica_set.namespace,
                    "labels": replica_set.labels,
                    "ownerReferences": [_owner("ReplicaSet", replica_set)],
                },
                "spec": dict(template["spec"]) | self._placed(),
                "status": {"phase": "Pending", "conditions": _conditions(now)},
            }
        )
        seconds = self._startup if isinstance(self._startup, int | float) else self._startup()
        self._due[pod["metadata"]["uid"]] = now + seconds

    def _placed(self) -> JSON:
        nodes = [record.name for record in self._cluster.store.records(("", "nodes"))]
        return {"nodeName": nodes[self._created % len(nodes)]} if nodes else {}

    def _start_pods(self, replica_set: Record, now: float) -> None:
        for pod in self._pods_of(replica_set).starting:
            if self._due.get(pod.document["metadata"]["uid"], now) > now:
                continue
            self._due.pop(pod.document["metadata"]["uid"], None)
            number = int(pod.document["metadata"]["uid"][-12:], 16)
            before = pod.document["status"]["conditions"]
            state = {
                "phase": "Running",
                "startTime": timestamp(now),
                "podIP": self._address(number),
                "conditions": _conditions(now, before),
                "containerStatuses": [
                    {
                        "name": container["name"],
                        "ready": True,
                        "restartCount": 0,
                        "state": {"running": {"startedAt": timestamp(now)}},
                    }
                    for container in pod.document["spec"].get("containers") or ()
                ],
            }
            self._cluster.patch("pods", pod.name, {"status": state}, pod.namespace)

    def _write_status(self, plural: str, record: Record, pods: _Pods, old: _Pods) -> None:
        present = len(pods.ready) + len(pods.starting)
        ready = len(pods.ready) + len(old.ready)
        state: JSON = {
            "replicas": present + len(old.ready) + len(old.starting),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": record.document["metadata"]["generation"],
        }
        if plural == "deployments":
            state["updatedReplicas"] = present
        self._cluster.patch(plural, record.name, {"status": state}, record.namespace)


def _owner(kind: str, record: Record) -> JSON:
    uid = record.document["metadata"]["uid"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": record.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _conditions(now: float, before: Sequence[JSON] = ()) -> list[JSON]:
    """Return the conditions of a pod that is scheduled, and of one that is Ready; `before` are its former."""
    bound = [condition for condition in before if condition["type"] in _ONCE_BOUND]
    return [
        *(bound or [_condition(name, now, holds=True) for name in _ONCE_BOUND]),
        _condition("Ready", now, holds=bool(before)),
    ]


def _condition(name: str, now: float, *, holds: bool) -> JSON:
    return {"type": name, "status": "True" if holds else "False", "lastTransitionTime": timestamp(now)}


def _letters(number: int) -> str:
    """Return a checksum of a template as text, like a pod-template-hash."""
    text = ""
    for _ in range(5):
        number, place = divmod(number, len(_LETTERS))
        text += _LETTERS[place]
    return text


class Rescale(NamedTuple):
    """A changed count and its time (the seconds of the watch's clock)."""

    time: float
    before: int
    after: int


class ScaleWatch:
    """Records the Scale writes of Deployments. `now` is read at each write."""

    def __init__(self, cluster: Cluster, now: Callable[[], float]) -> None:
        self._now = now
        self._writes: dict[tuple[str, str], list[Rescale]] = {}
        cluster.store.subscribe(cluster.kinds.find("deployments").key, self._changed)

    def raised(self, namespace: str, name: str, since: float, least: int = 0) -> float | None:
        """Return the time of the first raise after `since` to `least` replicas or more, None before it."""
        for write in self._writes.get((namespace, name), ()):
            if write.time >= since and write.after > write.before and write.after >= least:
                return write.time
        return None

    def highest(self, namespace: str, name: str, since: float) -> int:
        """Return the highest count written after `since`, 0 without a write."""
        writes = self._writes.get((namespace, name), ())
        return max((write.after for write in writes if write.time >= since), default=0)

    def _changed(self, change: Change) -> None:
        if change.old is None or change.new is None:
            return
        before, after = (record.document["spec"].get("replicas", 1) for record in (change.old, change.new))
        if before != after:
            place = change.new.namespace, change.new.name
            self._writes.setdefault(place, []).append(Rescale(self._now(), before, after))
