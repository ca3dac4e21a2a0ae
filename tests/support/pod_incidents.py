"""Pods that do not get Ready, with their ReplicaSets and events, as the kubelet and controllers write them.

Deployment shop/web has eight replicas: six Ready pods of revision 1, and pods of revision 2 that are not.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adapter.model.timestamps import SECOND, read_nanoseconds
from fastpath_sandbox.apiserver.objects import timestamp

NOW = 1_800_000_000
NEW, OLD = "web-5f6b8c9d7", "web-7d9f6c5b4"
IMAGE = "registry.example/shop/web:2"

Document = dict[str, Any]


class PodIncident(NamedTuple):
    """What is there, which words name the cause, and which the advice has."""

    pods: Sequence[Document]
    cause: str
    advice: str
    events: Sequence[Document] = ()
    sets: Sequence[Document] = ()
    replicas: int = 8


def at(seconds: float) -> str:
    return timestamp(NOW + seconds)


def condition(kind: str, status: str, reason: str = "", message: str = "", since: float = -120) -> Document:
    given = {"type": kind, "status": status, "reason": reason, "message": message}
    return given | {"lastTransitionTime": at(since)}


def replica_set(name: str, revision: int, *conditions: Document, **status: Any) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app": "web", "pod-template-hash": name.removeprefix("web-")},
            "annotations": {"deployment.kubernetes.io/revision": f"{revision}"},
            "creationTimestamp": at(-7200 if revision == 1 else -130),
            "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "1", "controller": True}],
        },
        "status": {"conditions": list(conditions), **status},
    }


def pod(name: str, owner: str = NEW, *, age: float = 125, **changes: Any) -> Document:
    """Return a pod; `changes` are of its status, `spec` and `metadata` of those."""
    spec = {"nodeName": "node-1", "containers": [{"name": "app", "image": IMAGE}]} | changes.pop("spec", {})
    labels = {"app": "web", "pod-template-hash": owner.removeprefix("web-")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": labels,
            "creationTimestamp": at(-age),
            "ownerReferences": [{"kind": "ReplicaSet", "name": owner, "uid": "2", "controller": True}],
        }
        | changes.pop("metadata", {}),
        "spec": spec,
        "status": {
            "phase": "Pending",
            "conditions": [
                condition("PodScheduled", "True", since=-age),
                condition(
                    "Ready", "False", "ContainersNotReady", "containers with unready status: [app]", -age
                ),
            ],
        }
        | changes,
    }


def ready(name: str, owner: str = OLD, *, restarts: int = 0, age: float = 7000, **last: Any) -> Document:
    status = running(is_ready=True, restarts=restarts, since=-age + 2) | last
    conditions = [condition(kind, "True", since=2 - age) for kind in ("PodScheduled", "Ready")]
    return pod(name, owner, age=age, phase="Running", conditions=conditions, containerStatuses=[status])


def running(*, is_ready: bool = False, restarts: int = 0, since: float = -100, **others: Any) -> Document:
    state = {"running": {"startedAt": at(since)}}
    return {
        "name": "app",
        "ready": is_ready,
        "started": True,
        "restartCount": restarts,
        "state": state,
    } | others


def waiting(reason: str, message: str = "", *, restarts: int = 0, **others: Any) -> Document:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    status = {"name": "app", "ready": False, "started": False, "restartCount": restarts, "state": state}
    return status | others


def terminated(code: int, reason: str = "Error", *, ago: float = 20, message: str = "") -> Document:
    ended = {"exitCode": code, "reason": reason, "startedAt": at(-ago - 5), "finishedAt": at(-ago)}
    return {"terminated": ended | ({"message": message} if message else {})}


def event(name: str, reason: str, message: str, *, kind: str = "Pod", ago: float = 20) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{len(message)}-{reason.lower()}", "namespace": "shop"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "shop"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": at(-125),
        "lastTimestamp": at(-ago),
        "count": 4,
    }


def scheduled_event(name: str, message: str) -> Document:
    """Return an event as the scheduler writes it: without a last timestamp."""
    return event(name, "FailedScheduling", message) | {"lastTimestamp": None, "eventTime": at(-100)}


A, B = f"{NEW}-aaaaa", f"{NEW}-bbbbb"
OLD_PODS = [ready(f"{OLD}-{letter * 5}") for letter in "cdefgh"]
SETS = (replica_set(NEW, 2), replica_set(OLD, 1))


def both(*statuses: Document, **changes: Any) -> list[Document]:
    """Return two pods of the new version whose containers have a status, and the six Ready ones."""
    given: dict[str, Any] = {"containerStatuses": list(statuses)} if statuses else {}
    return [pod(A, **given, **changes), pod(B, **given, **changes), *OLD_PODS]


def unplaced(message: str, reason: str = "Unschedulable") -> list[Document]:
    conditions = [condition("PodScheduled", "False", reason, message, -125)]
    return both(conditions=conditions, spec={"nodeName": ""})


def ending(**metadata: Any) -> list[Document]:
    gone = {"deletionTimestamp": at(-90), "deletionGracePeriodSeconds": 30} | metadata
    pods = [ready(f"{OLD}-{letter * 5}") for letter in "cdefgh"]
    return [one | {"metadata": one["metadata"] | gone} for one in pods]


def held() -> list[Document]:
    """Return pods whose containers have ended and that a finalizer holds, as a kubelet writes them."""
    status = running() | {"started": False, "state": terminated(137)}
    failed = condition("Ready", "False", "PodFailed", since=-90)
    ended = {"phase": "Failed", "conditions": [failed], "containerStatuses": [status]}
    pods = ending(finalizers=["example.com/hold"], deletionGracePeriodSeconds=0)
    return [one | {"status": ended} for one in pods]


INIT = {"initContainers": [{"name": "migrate", "image": "shop/migrate:2"}]}
INIT_WAITS = [waiting("PodInitializing")]
NOT_FOUND = (
    'Back-off pulling image "registry.example/shop/web:2": ErrImagePull: failed to pull and unpack image '
    '"registry.example/shop/web:2": failed to resolve image: registry.example/shop/web:2: not found'
)
RUNC = "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
OF_NEW = f"2 pods of Deployment web are not Ready since {at(-125)[11:19]} UTC (ReplicaSet {NEW}, revision 2"
REFUSED = f"new pods are refused since {at(-125)[11:19]} UTC (ReplicaSet {NEW}, revision 2)"
QUOTA = (
    'pods "web-5f6b8c9d7-x" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=8, '
    "limited: pods=8"
)
SECURITY = (
    'pods "web-5f6b8c9d7-x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation '
    '!= false (container "app" must set securityContext.allowPrivilegeEscalation=false), unrestricted '
    'capabilities (container "app" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true '
    '(pod or container "app" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container '
    '"app" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
)


def refused(message: str) -> dict[str, Any]:
    failure = condition("ReplicaFailure", "True", "FailedCreate", message, -125)
    return {"pods": [ready(f"{OLD}-{letter * 5}") for letter in "abcdefgh"]} | {
        "sets": (replica_set(NEW, 2, failure), SETS[1])
    }


INCIDENTS: Mapping[str, PodIncident] = {
    "image not found": PodIncident(
        both(waiting("ImagePullBackOff", NOT_FOUND)),
        f"{OF_NEW}, image {IMAGE}): container app: ImagePullBackOff: {NOT_FOUND}",
        "correct the image in the pod template",
    ),
    "image never pulled": PodIncident(
        both(
            waiting("ErrImageNeverPull", 'Container image "web:2" is not present with pull policy of Never')
        ),
        "ErrImageNeverPull: Container image",
        "correct the image",
    ),
    "image runs as root": PodIncident(
        both(
            waiting(
                "CreateContainerConfigError",
                f'container has runAsNonRoot and image will run as root (pod: "{A}_shop", container: app)',
            )
        ),
        "CreateContainerConfigError: container has runAsNonRoot and image will run as root",
        "set runAsUser in the pod template",
    ),
    "invalid image name": PodIncident(
        both(
            waiting("InvalidImageName", 'Failed to apply default image tag "Web:2": invalid reference format')
        ),
        "InvalidImageName: Failed to apply",
        "correct the image",
    ),
    "ConfigMap of envFrom missing": PodIncident(
        both(waiting("CreateContainerConfigError", 'configmap "settings" not found')),
        'container app: CreateContainerConfigError: configmap "settings" not found',
        "create what is not found",
    ),
    "command not found": PodIncident(
        both(
            waiting(
                "RunContainerError",
                f'{RUNC}unable to start container process: exec: "/srv/app": no such file or directory',
                restarts=2,
                lastState=terminated(128, "StartError"),
            )
        ),
        "container app: RunContainerError: failed to create containerd task",
        "correct its command",
    ),
    "crash loop": PodIncident(
        both(
            waiting(
                "CrashLoopBackOff",
                "back-off 40s restarting failed container=app",
                restarts=4,
                lastState=terminated(1, message="panic: no database"),
            )
        ),
        f"2 pods of Deployment web keep restarting since {at(-125)[11:19]} UTC (ReplicaSet {NEW}, revision 2"
        f", image {IMAGE}): container app, 4 restarts: exit code 1: panic: no database",
        f"look at its last output: kubectl -n shop logs {A} -c app --previous",
    ),
    "exec format error": PodIncident(
        both(waiting("CrashLoopBackOff", restarts=3, lastState=terminated(255))),
        "3 restarts: exit code 255",
        "--previous",
    ),
    "out of memory": PodIncident(
        both(waiting("CrashLoopBackOff", restarts=3, lastState=terminated(137, "OOMKilled"))),
        "container app, 3 restarts: OOMKilled, exit code 137",
        "raise the memory limit",
    ),
    "out of memory, and Ready again": PodIncident(
        [ready(A, NEW, age=125, restarts=1, lastState=terminated(0, "OOMKilled")), *OLD_PODS],
        "1 pod of Deployment web keeps restarting since",
        "raise the memory limit",
    ),
    "command not found, later": PodIncident(
        both(waiting("CrashLoopBackOff", restarts=4, lastState=terminated(128, "StartError", message=RUNC))),
        "container app, 4 restarts: exit code 128 (StartError): failed to create containerd task",
        "correct its command",
    ),
    "hook after the start": PodIncident(
        both(waiting("CrashLoopBackOff", restarts=3, lastState=terminated(137))),
        "container app, 3 restarts: PostStartHook failed",
        "correct that probe or hook",
        [event(A, "FailedPostStartHook", "PostStartHook failed")],
    ),
    "liveness probe kills": PodIncident(
        both(running(restarts=3, since=-5, lastState=terminated(137, "Error", ago=6)), phase="Running"),
        "keep restarting since",
        "correct that probe or hook, or what it asks",
        [
            event(A, "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
            event(A, "Killing", "Container app failed liveness probe, will be restarted"),
        ],
    ),
    "liveness probe kills Ready pods": PodIncident(
        [
            ready(A, NEW, age=125, restarts=3, lastState=terminated(143, ago=30)),
            ready(B, NEW, age=125, restarts=3, lastState=terminated(143, ago=30)),
            *OLD_PODS,
        ],
        "keep restarting since",
        "correct that probe",
        [event(A, "Unhealthy", "Liveness probe failed: command timed out")],
    ),
    "startup probe never passes": PodIncident(
        both(running(started=False, since=-110), phase="Running"),
        "container app: Startup probe failed: dial tcp 10.0.0.7:8080: connect: connection refused",
        f"kubectl -n shop logs {A} -c app",
        [event(A, "Unhealthy", "Startup probe failed: dial tcp 10.0.0.7:8080: connect: connection refused")],
    ),
    "readiness 503": PodIncident(
        both(running(), phase="Running"),
        f"{OF_NEW}): container app: Readiness probe failed: HTTP probe failed with statuscode: 503",
        f"kubectl -n shop logs {A} -c app",
        [event(A, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")],
    ),
    "readiness without events": PodIncident(
        both(running(), phase="Running"), "container app: its readiness probe does not pass", "logs"
    ),
    "init container fails": PodIncident(
        both(
            *INIT_WAITS,
            spec=INIT,
            initContainerStatuses=[
                waiting("CrashLoopBackOff", restarts=3, lastState=terminated(2), name="migrate")
            ],
        ),
        "image shop/migrate:2): init container migrate, 3 restarts: exit code 2",
        "-c migrate --previous",
    ),
    "init container hangs": PodIncident(
        both(*INIT_WAITS, spec=INIT, initContainerStatuses=[running(name="migrate")]),
        "init container migrate runs and does not end",
        "-c migrate",
    ),
    "Secret of a volume missing": PodIncident(
        both(waiting("ContainerCreating")),
        'MountVolume.SetUp failed for volume "tls" : secret "web-tls" not found',
        "create what is not found",
        [
            event(A, "FailedMount", 'MountVolume.SetUp failed for volume "tls" : secret "web-tls" not found'),
            event(A, "FailedMount", "Unable to attach or mount volumes: unmounted volumes=[tls]", ago=5),
        ],
    ),
    "no sandbox": PodIncident(
        both(waiting("ContainerCreating")),
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network",
        "kubectl -n shop describe pod",
        [
            event(
                A,
                "FailedCreatePodSandBox",
                "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network",
            )
        ],
    ),
    "not created and without events": PodIncident(
        both(waiting("ContainerCreating")),
        "its containers are not created (ContainerCreating)",
        "describe pod",
    ),
    "no room": PodIncident(
        unplaced(
            "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: 0/3 nodes "
            "are available: 3 Preemption is not helpful for scheduling."
        ),
        f"2 pods of Deployment web wait for a node since {at(-125)[11:19]} UTC (ReplicaSet {NEW}, revision 2)"
        ": 0/3 nodes are available: 3 Insufficient cpu",
        "add nodes, or lower the requests",
        [scheduled_event(A, "0/3 nodes are available: 3 Insufficient cpu.")],
    ),
    "node selector": PodIncident(
        unplaced("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
        "didn't match Pod's node affinity/selector",
        "change where its pods may run",
    ),
    "taint": PodIncident(
        unplaced("0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: batch}."),
        "untolerated taint",
        "change where its pods may run",
    ),
    "claim missing": PodIncident(
        unplaced('0/1 nodes are available: persistentvolumeclaim "data" not found. not found'),
        ': 0/1 nodes are available: persistentvolumeclaim "data" not found',
        "create or bind that claim: kubectl -n shop get pvc",
    ),
    "claim unbound": PodIncident(
        unplaced("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        "unbound immediate PersistentVolumeClaims",
        "create or bind that claim",
    ),
    "host port": PodIncident(
        unplaced("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."),
        "didn't have free ports",
        "remove hostPort",
    ),
    "scheduling gate": PodIncident(
        unplaced("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated"),
        "SchedulingGated: Scheduling is blocked",
        "remove the scheduling gates",
    ),
    "no such scheduler": PodIncident(
        both(conditions=[], spec={"nodeName": ""}), "no scheduler has looked at it", "schedulerName"
    ),
    "quota, condition of the set": PodIncident(
        **refused(QUOTA),
        cause=f"8 replicas: {REFUSED}: {QUOTA}",
        advice="raise the ResourceQuota",
    ),
    "Pod Security": PodIncident(
        **refused(SECURITY),
        cause='violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false, unrestricted '
        "capabilities, runAsNonRoot != true, seccompProfile",
        advice="set these fields in the pod template",
    ),
    "webhook down": PodIncident(
        **refused('Internal error occurred: failed calling webhook "v.example": no endpoints available'),
        cause="failed calling webhook",
        advice="repair that webhook",
    ),
    "LimitRange": PodIncident(
        **refused("pods is forbidden: maximum memory usage per Container is 64Mi, but limit is 128Mi"),
        cause="maximum memory usage per Container",
        advice="the LimitRange",
    ),
    "ServiceAccount missing": PodIncident(
        **refused('error looking up service account shop/api: serviceaccount "api" not found'),
        cause='serviceaccount "api" not found',
        advice="create what the pod template names",
    ),
    "PriorityClass missing": PodIncident(
        **refused("pods is forbidden: no PriorityClass with name urgent was found"),
        cause="no PriorityClass with name urgent",
        advice="create what the pod template names",
    ),
    "quota, events of the set": PodIncident(
        OLD_PODS,
        f"Deployment web has 6 of 8 replicas: {REFUSED}: Error creating: {QUOTA}",
        "raise the ResourceQuota",
        [event(NEW, "FailedCreate", f"Error creating: {QUOTA}", kind="ReplicaSet")],
    ),
    "finalizer": PodIncident(
        held(),
        f"6 pods of Deployment web do not end since {at(-90)[11:19]} UTC (ReplicaSet {OLD}, revision 1): "
        "held by finalizer example.com/hold, and no pod takes its place before",
        "have what set that finalizer remove it",
    ),
    "preStop hangs": PodIncident(
        ending(deletionTimestamp=at(200), deletionGracePeriodSeconds=300),
        f"the containers have until {at(200)[11:19]} UTC to end (terminationGracePeriodSeconds, preStop)",
        "preStop",
    ),
    "node is gone while pods end": PodIncident(
        ending(finalizers=["example.com/hold"]),
        "node node-1 does not report that the containers have ended",
        "restore node node-1, or delete it",
    ),
    "node NotReady": PodIncident(
        [
            pod(
                f"{OLD}-aaaaa",
                OLD,
                age=7000,
                phase="Running",
                conditions=[condition("PodScheduled", "True"), condition("Ready", "False")],
                containerStatuses=[running(is_ready=True)],
            ),
            *OLD_PODS,
        ],
        f"1 pod of Deployment web is not Ready since {at(-120)[11:19]} UTC (ReplicaSet {OLD}, revision 1): "
        "node node-1: Node is not ready",
        "restore node node-1",
        [event(f"{OLD}-aaaaa", "NodeNotReady", "Node is not ready")],
    ),
    "readiness gate": PodIncident(
        both(
            running(is_ready=True),
            phase="Running",
            conditions=[
                condition("PodScheduled", "True"),
                condition(
                    "Ready",
                    "False",
                    "ReadinessGatesNotReady",
                    'corresponding condition of pod readiness gate "lb" does not exist.',
                ),
            ],
        ),
        'ReadinessGatesNotReady: corresponding condition of pod readiness gate "lb" does not exist',
        "readiness gates",
    ),
    "evicted": PodIncident(
        [
            pod(A, phase="Failed", reason="Evicted", message="The node was low on resource: memory. "),
            *OLD_PODS,
        ],
        f"1 pod of Deployment web has ended since {at(-125)[11:19]} UTC (ReplicaSet {NEW}, revision 2): "
        "Evicted: The node was low on resource: memory",
        "describe pod",
    ),
    "evicted for a volume": PodIncident(
        [
            pod(
                A,
                phase="Failed",
                reason="Evicted",
                message='Usage of EmptyDir volume "v" exceeds the limit "1Mi"',
            ),
            *OLD_PODS,
        ],
        'Evicted: Usage of EmptyDir volume "v" exceeds the limit "1Mi"',
        "raise the limit that is exceeded",
    ),
}
"""Incidents by name. Of the cause a part is given, from its beginning where the whole sentence matters."""


def shifted(document: Any, seconds: float) -> Any:
    """Return a document with all its instants moved, so that `NOW` is another time."""
    if isinstance(document, dict):
        return {name: shifted(value, seconds) for name, value in document.items()}
    if isinstance(document, list):
        return [shifted(one, seconds) for one in document]
    if isinstance(document, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document):
        return timestamp(read_nanoseconds(document) / SECOND + seconds)
    return document
