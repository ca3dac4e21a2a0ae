"""What keeps pods of a target from getting Ready, in the words of the kubelet, the scheduler and the sets.

The states of containers, which need no right to events, decide; an event has the message where a state has
none. Pods with one cause count together. A failure comes before pods that only take long, and the newest
version before older ones: a rollout stands still for it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from adapter.model.autoscaling.hpa import Condition
from adapter.model.timestamps import SECOND, write_instant
from adapter.model.visible import counted
from fastpath_tools.live.api_objects import (
    ContainerState,
    ContainerStatus,
    ObjectEvent,
    PodDocument,
    TerminatedState,
    WaitingState,
    WorkloadDocument,
)
from fastpath_tools.live.facts import UnreadyPods

USUAL = 60.0
"""After how many seconds a pod is late where no start of the target was measured."""

_LATELY = 600 * SECOND
"""For how long a restart or an end counts; after as long a time the kubelet forgets restarts too."""

_HOUR = 3600 * SECOND
_REVISION = "deployment.kubernetes.io/revision"
_DIGITS = 10
_LONGEST = 600
"""How long a message becomes. From half of that on it loses its brackets, where details stand."""

_BRACKETS = re.compile(r" ?\((?:[^()]|\([^()]*\))*\)")
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"})

_KILLING = re.compile("(?:Liveness|Startup) probe failed")
_AFTERWARDS = re.compile(
    r"\. (?:no new claims to deallocate, )?preemption: .*|(?<=not found)\. not found\.?$", re.DOTALL
)
"""What the scheduler adds on preemption."""

_START = "correct its command, image, mounts or hooks"
_IMAGE = "correct the image in the pod template, or make it available to the nodes"
_OF_REASONS = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "ErrImageNeverPull": _IMAGE,
    "InvalidImageName": _IMAGE,
    "ImageInspectError": _IMAGE,
    "CreateContainerConfigError": "create what is not found, or correct its name in the pod template",
}
"""What to do about the reason of a container that waits."""

_OF_MESSAGES = (
    (r"exceeded quota", "raise the ResourceQuota of the namespace, or lower the requests of its pods"),
    (r"violates PodSecurity", "set these fields in the pod template, or change the labels of the namespace"),
    (r"webhook", "repair that webhook, or change what it refuses"),
    (r"service account|PriorityClass|RuntimeClass", "create what the pod template names"),
    (r"usage per|limit to request|must be less than", "change requests and limits, or the LimitRange"),
    (r"Insufficient|Too many pods", "add nodes, or lower the requests of its pods"),
    (r"(?i)persistent ?volume", "create or bind that claim: kubectl -n {namespace} get pvc"),
    (r"EmptyDir|ephemeral", "raise the limit that is exceeded, or have its containers write less"),
    (r"free ports", "remove hostPort from the pod template, or add nodes"),
    (r"taint|affinity|selector|topology|spread", "add nodes that fit, or change where its pods may run"),
    (r"not found", "create what is not found, or correct its name in the pod template"),
)
"""What to do about a message of the API server, the scheduler, or a volume; the first that fits counts."""


class _PodCause(NamedTuple):
    """Why a pod is not Ready; `kind` is the same for pods with the same cause.

    `what` is said of one pod and of several; `is_failing` tells that it is no matter of time.
    """

    kind: str
    why: str
    since: int
    advice: str
    is_failing: bool = True
    what: tuple[str, str] = ("is not Ready", "are not Ready")
    image: str = ""


class PodTarget(NamedTuple):
    """A target as ``Kind name``, and how many pods it is to have.

    `sets` are its ReplicaSets, the newest first, and the target itself, as far as they may be read. `usual`
    is how many seconds its pods take to be Ready.
    """

    name: str
    replicas: int
    sets: Sequence[WorkloadDocument]
    usual: float = USUAL


def find(
    target: PodTarget, pods: Sequence[PodDocument], events: Sequence[ObjectEvent], now: int
) -> UnreadyPods | None:
    """Return the cause that counts, None where all pods are Ready or start as usual."""
    places = {one.metadata.name: place for place, one in enumerate(target.sets)}
    pods = [pod for pod in pods if _owner(pod) in places] or pods  # a selector may match pods of others
    living = sum(pod.metadata.deletion_timestamp is None and not _has_ended(pod) for pod in pods)
    if (refused := _refusal(target, living, events)) is not None:
        return refused
    newest = sorted(events, key=lambda event: -event.at)
    groups: dict[tuple[str, str], list[tuple[PodDocument, _PodCause]]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: (-(pod.metadata.creation_timestamp or 0), pod.metadata.name)):
        own = [one for one in newest if one.involved_object.name == pod.metadata.name]
        if pod.metadata.deletion_timestamp is None:
            cause = _cause(pod, own, now)
        else:
            cause = _ending(pod, pod.metadata.deletion_timestamp, now) if living < target.replicas else None
        if cause is not None:
            groups[cause.kind, _owner(pod)].append((pod, cause))
    ranked = []
    for (_, owner), members in groups.items():
        pod, cause = members[0]
        since = min(cause.since for _, cause in members)
        is_late = now - since > target.usual * SECOND
        if cause.is_failing or is_late:
            rank = not cause.is_failing, places.get(owner, len(places)), -len(members)
            ranked.append((rank, pod, cause._replace(since=since), len(members), is_late))
    if not ranked:
        return None
    _, pod, cause, count, is_late = min(ranked, key=lambda one: one[0])
    what = [f"of {target.name} {words}" for words in cause.what]
    text = f"{counted(count, f'pod {what[0]}', f'pods {what[1]}')} since {_clock(cause.since)}"
    version = _version(pod.metadata.labels, _owner(pod), target.sets, cause.image)
    text = f"{text}{version}: {cause.why}"
    advice = cause.advice or "look at its events: kubectl -n {namespace} describe pod {pod}"
    advice = advice.format(pod=pod.metadata.name, namespace=pod.metadata.namespace)
    return UnreadyPods(text, advice, pod.metadata.name, is_late)


def revision(one: WorkloadDocument) -> int:
    """Return the number of a ReplicaSet among those of its Deployment, 0 without one."""
    text = (one.metadata.annotations or {}).get(_REVISION, "")
    return int(text) if text.isdecimal() and len(text) < _DIGITS else 0


def _clock(at: int) -> str:
    return f"{write_instant(at)[11:19]} UTC"


def _about(message: str) -> str:
    return next((words for pattern, words in _OF_MESSAGES if re.search(pattern, message)), "")


def tidy(message: str) -> str:
    line = _AFTERWARDS.sub("", " ".join(message.split())).rstrip(".")
    if len(line) > _LONGEST // 2:
        line = " ".join(_BRACKETS.sub("", line).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _owner(pod: PodDocument) -> str:
    return next((owner.name for owner in pod.metadata.owner_references or () if owner.controller), "")


def _version(
    labels: Mapping[str, str] | None, owner: str, sets: Iterable[WorkloadDocument], image: str = ""
) -> str:
    """Return of which ReplicaSet or revision a pod is by the labels that both have, and its image."""
    labels = labels or {}
    number = labels.get("controller-revision-hash", "")
    parts = [f"ReplicaSet {owner}"] if any(label.endswith("pod-template-hash") for label in labels) else []
    for one in sets:
        if one.metadata.name == owner:
            number = (one.metadata.annotations or {}).get(_REVISION, number)
    parts += [f"revision {number}"] if number else []
    parts += [f"image {image}"] if image else []
    return f" ({', '.join(parts)})" if parts else ""


def _find_condition(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    return next((condition for condition in conditions or () if condition.type == kind), None)


# -- pods that are not created, or not gone ------------------------------------------------------------------


def _refusal(target: PodTarget, living: int, events: Iterable[ObjectEvent]) -> UnreadyPods | None:
    """Return why the API server refuses new pods; of the events of a set the last one counts."""
    refusals = {
        event.involved_object.name: event
        for event in sorted(events, key=lambda event: event.at)
        if event.reason == "FailedCreate"
    }
    since: int | None
    for one in target.sets:
        condition = _find_condition(one.status.conditions, "ReplicaFailure")
        event = refusals.get(one.metadata.name)
        if condition is not None and condition.status == "True":
            message, since = condition.message, condition.last_transition_time or 0
        elif event is not None and living < target.replicas:
            message, since = event.message, event.first_timestamp or event.at
        else:
            continue
        replicas = counted(target.replicas, "replica", "replicas")
        when = f" since {_clock(since)}" if since else ""
        version = _version(one.metadata.labels, one.metadata.name, target.sets)
        text = f"{target.name} has {living} of {replicas}: new pods are refused{when}{version}"
        text = f"{text}: {tidy(message)}"
        advice = _about(message) or f"make what refuses the pods of {target.name} allow them"
        return UnreadyPods(text, advice.format(namespace=one.metadata.namespace))
    return None


def _ending(pod: PodDocument, deadline: int, now: int) -> _PodCause:
    """Return why a deleted pod is still there, where no pod takes its place before it is gone.

    A finalizer holds it only once the kubelet has reported that its containers have ended.
    """
    finalizers = ", ".join(pod.metadata.finalizers or ())
    since = deadline - (pod.metadata.deletion_grace_period_seconds or 0) * SECOND
    is_over = all(one.started_at is None for one in pod.status.container_statuses or ())
    if finalizers and deadline < now and is_over:
        why = f"held by finalizer {finalizers}"
        advice = "have what set that finalizer remove it: kubectl -n {namespace} get pod {pod} -o yaml"
    elif deadline < now:
        why = f"node {pod.spec.node_name} does not report that the containers have ended"
        advice = f"restore node {pod.spec.node_name}, or delete it"
    else:
        why = f"the containers have until {_clock(deadline)} to end (terminationGracePeriodSeconds, preStop)"
        advice = "shorten what its preStop hook or its shutdown waits for"
    why = f"{why}, and no pod takes its place before"
    return _PodCause("ending", why, since, advice, deadline < now, ("does not end", "do not end"))


# -- pods that are not Ready ---------------------------------------------------------------------------------


def _has_ended(pod: PodDocument) -> bool:
    return pod.status.phase in {"Succeeded", "Failed"}


_UNPLACED = ("waits for a node", "wait for a node")


def _cause(pod: PodDocument, events: Sequence[ObjectEvent], now: int) -> _PodCause | None:
    status, ready = pod.status, _find_condition(pod.status.conditions, "Ready")
    created = since = pod.metadata.creation_timestamp or now
    if ready is not None:
        since = ready.last_transition_time or since
    if _has_ended(pod):
        if status.phase != "Failed" or not status.reason or now - since > _LATELY:
            return None
        why = f"{status.reason}: {tidy(status.message)}"
        what = ("has ended", "have ended")
        return _PodCause(f"ended {status.reason}", why, since, _about(status.message), what=what)
    crashed = next(_crashes(pod, events, created if now - created < _HOUR else since, now), None)
    if crashed is not None or pod.ready is not None:
        return crashed
    placed = _find_condition(status.conditions, "PodScheduled")
    if placed is not None and placed.status == "False":
        gated = f"{placed.reason}: " if placed.reason != "Unschedulable" else ""
        advice = "remove the scheduling gates of its pods" if gated else _about(placed.message)
        why = f"{gated}{tidy(placed.message)}"
        return _PodCause(f"unplaced {placed.reason}", why, since, advice, what=_UNPLACED)
    if not pod.spec.node_name and placed is None:
        why, advice = "no scheduler has looked at it", "start the scheduler that schedulerName names"
        return _PodCause("unseen", why, since, advice, is_failing=False, what=_UNPLACED)
    return _waiting(pod, events, ready, since)


def _crashes(pod: PodDocument, events: Sequence[ObjectEvent], since: int, now: int) -> Iterator[_PodCause]:
    """Yield what containers fail with; init containers come first, since the others wait for them."""
    images = {one.name: one.image for one in (*(pod.spec.init_containers or ()), *pod.spec.containers)}
    inits = [(f"init container {one.name}", one) for one in pod.status.init_container_statuses or ()]
    others = [(f"container {one.name}", one) for one in pod.status.container_statuses or ()]
    for title, status in (*inits, *others):
        waiting = (status.state or ContainerState()).waiting or WaitingState()
        ended, image = _last_end(status), images.get(status.name, "")
        if waiting.reason not in _STARTING:
            why = f"{title}: {waiting.reason}: {tidy(waiting.message or _message(events, 'Failed'))}"
            advice = _OF_REASONS.get(waiting.reason, _START)
            if "runAsNonRoot" in waiting.message:
                advice = "set runAsUser in the pod template, or use an image that names a user by number"
            yield _PodCause(f"{title} {advice}", why, since, advice, image=image)
        elif ended is not None and (waiting.reason == "CrashLoopBackOff" or _counts(pod, status, ended, now)):
            why, advice = _describe_end(title, status, ended, events)
            what = ("keeps restarting", "keep restarting") if status.restart_count else ("fails", "fail")
            yield _PodCause(f"{title} ends", why, since, advice, what=what, image=image)


def _last_end(status: ContainerStatus) -> TerminatedState | None:
    """Return how a container ended last, None if it did not, or as an init container is to end."""
    state, last = status.state or ContainerState(), status.last_state or ContainerState()
    if state.terminated is not None:
        return state.terminated if state.terminated.exit_code else None
    return last.terminated


def _counts(pod: PodDocument, status: ContainerStatus, ended: TerminatedState, now: int) -> bool:
    """Tell whether an end still counts: a Ready pod may have been restarted once, but for its memory."""
    is_recent, is_oom = now - (ended.finished_at or now) <= _LATELY, ended.reason == "OOMKilled"
    return is_recent and (not status.ready if pod.ready is None else status.restart_count > 1 or is_oom)


def _describe_end(
    title: str, status: ContainerStatus, ended: TerminatedState, events: Iterable[ObjectEvent]
) -> tuple[str, str]:
    """Return how often and how a container ended, and what to do: a probe killed it, or it ended itself."""
    killing = (one for one in events if _KILLING.match(one.message) or one.reason == "FailedPostStartHook")
    why = next((one.message for one in killing), "")
    advice = "correct that probe or hook, or what it asks"
    if ended.reason == "OOMKilled":
        why, advice = f"OOMKilled, exit code {ended.exit_code}", "raise the memory limit of that container"
    elif not why:
        named = f" ({ended.reason})" if ended.reason not in {"", "Error"} else ""
        why = f"exit code {ended.exit_code}{named}{': ' if ended.message else ''}{ended.message}"
        advice = f"look at its last output: kubectl -n {{namespace}} logs {{pod}} -c {status.name} --previous"
        advice = _START if ended.reason in {"StartError", "ContainerCannotRun"} else advice
    times = counted(status.restart_count, "restart", "restarts")
    return f"{title}, {times}: {tidy(why)}", advice


def _waiting(
    pod: PodDocument, events: Sequence[ObjectEvent], ready: Condition | None, since: int
) -> _PodCause:
    """Return what a pod waits for that has a node and no failed container."""
    logs = "look at its output: kubectl -n {{namespace}} logs {{pod}} -c {}"
    sidecars = {one.name for one in pod.spec.init_containers or () if one.restart_policy == "Always"}
    for status in pod.status.init_container_statuses or ():
        if status.started_at is not None and not status.ready and status.name not in sidecars:
            why = f"init container {status.name} runs and does not end"
            return _PodCause("init", why, since, logs.format(status.name), is_failing=False)
    statuses = pod.status.container_statuses or ()
    if not statuses or any(status.started_at is None for status in statuses):
        reasons = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "NetworkNotReady")
        failed = _message(events, *reasons)
        why = tidy(failed) or "its containers are not created (ContainerCreating)"
        return _PodCause(f"creating {bool(failed)}", why, since, _about(failed), is_failing=bool(failed))
    for status in statuses:
        if not status.ready:
            probe = "startup" if status.started is False else "readiness"
            why = tidy(_message(events, "Unhealthy")) or f"its {probe} probe does not pass"
            why = f"container {status.name}: {why}"
            return _PodCause(f"unready {status.name}", why, since, logs.format(status.name), is_failing=False)
    if ready is not None and ready.reason == "ReadinessGatesNotReady":
        why, advice = f"{ready.reason}: {tidy(ready.message)}", "look at what sets its readiness gates"
        return _PodCause("gates", why, since, advice, is_failing=False)
    why = f"node {pod.spec.node_name}: {_message(events, 'NodeNotReady') or 'it does not report'}"
    return _PodCause("node", why, since, f"restore node {pod.spec.node_name}")


def _message(events: Iterable[ObjectEvent], *reasons: str) -> str:
    """Return the newest message of events with a reason; that volumes are not there in time says least."""
    messages = [event.message for event in events if event.reason in reasons]
    named = [message for message in messages if not message.startswith("Unable to attach or mount")]
    return next(iter(named or messages), "")
