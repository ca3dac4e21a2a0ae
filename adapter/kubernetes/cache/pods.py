"""`PodCache` keeps the pods of the cluster from one watch, decoded to the facts that decisions need.

It is the only cache of pods of a process that scales. The scaler reads its selections, custom metrics read
names by label selector from its index, and resource metrics read the pods whose phase is Running. Until the
first list is in, every answer is "not synced".

There may be 100,000 pods, so a pod costs a few hundred bytes (specs, labels and strings are shared), and no
object that exists once per pod is tracked by the garbage collector.
"""

import math
import sys
from collections.abc import Iterator, Mapping

import msgspec

from adapter.kubernetes.cache import pod_codec, pod_starts
from adapter.kubernetes.cache.pod_codec import SharedSpec, WatchedPod, WirePod
from adapter.kubernetes.cache.pod_selections import RECENT_SECONDS, Follower, PodNamespace, Selection
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import LabeledCache, in_steps
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import Unreadable
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector
from adapter.model.objects.resources import known_kind
from adapter.model.ready_times import Outcome, PodStart
from adapter.model.timestamps import SECOND

PODS = known_kind("v1", "Pod")

_STEP = 1_000
RUNNING = "Running"


class PodCache(LabeledCache[WirePod]):
    """The pods of the cluster, or of `namespace`, and the selections among them, while `run` runs.

    `selector` restricts the pods that are watched, `purpose` names the watch in logs and self-metrics.
    """

    def __init__(
        self,
        context: ReflectorContext,
        namespace: str = "",
        *,
        selector: LabelSelector = EVERYTHING,
        purpose: str = "scaler",
    ) -> None:
        source = ListWatch(pod_codec.POD_CODEC, PODS, namespace, selector=selector)
        super().__init__(source, context, f"pods in {namespace} ({purpose})" if namespace else "pods")
        self.running = 0
        """The number of pods whose phase is Running."""
        self._spaces: dict[str, PodNamespace] = {}
        self._specs: dict[bytes, SharedSpec] = {}
        self._touched: dict[Selection, None] = {}
        """Those whose followers are to be notified."""
        self._announced = False

    # -- questions -------------------------------------------------------------------------------------------

    def stale(self) -> str:
        """Return why the cache may be out of date, "" if it is not.

        A failing watch makes it out of date at once, because pods come and go within seconds.
        """
        age = math.inf if self.heard is None else self.clock.monotonic() - self.heard
        if self.error is None and age <= self._periods.stale:
            return ""
        heard = "no list of pods yet" if self.heard is None else f"no watch event for pods for {age:.0f} s"
        return f"{heard}: {self.failure}" if self.error else heard

    def find(self, namespace: str, name: str) -> WatchedPod | None:
        """Return a pod, None if it does not exist; `errors.NotSyncedError` before the first list."""
        self.check_synced()
        space = self._spaces.get(namespace)
        return space.pods.get(name) if space else None

    def select(self, namespace: str, selector: LabelSelector) -> tuple[WatchedPod, ...]:
        """Return the pods that match, in list order; `errors.NotSyncedError` before the first list."""
        self.check_synced()
        space = self._spaces.get(namespace)
        return space.select(selector) if space else ()

    def became_ready(self, namespace: str) -> Mapping[str, float]:
        """Return when pods of a namespace became ready lately, by name, in monotonic seconds."""
        space = self._spaces.get(namespace)
        return {} if space is None else space.became_ready.times(self.clock.monotonic())

    def follow(self, namespace: str, selector: LabelSelector, follower: Follower) -> Selection:
        """Subscribe to the pods that match, until `Selection.leave`."""
        space = self._space(namespace)
        selection = space.selections.get(selector)
        if selection is None:
            selection = Selection(space, selector)
            space.add(selection)
        selection.followers.append(follower)
        space.generation += 1
        return selection

    # -- events ----------------------------------------------------------------------------------------------

    def put(self, pod: WirePod) -> None:
        meta = pod.metadata
        space = self._space(meta.namespace)
        old = space.pods.get(meta.name)
        key = pod_codec.build_key(pod.spec)
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = pod_codec.share(pod.spec, key)
        # without labels it is no pod of a target, which may not scale down while it has fewer than it says
        kept = meta.labels if meta.labels and len(meta.labels) <= pod_codec.MOST_LABELS else None
        labels = self.index.put(space.name, meta.name, kept)
        new = pod_codec.build(pod, space.name, labels, spec, old)
        if new == old:
            return
        spec.users += 1
        self.running += (new.phase == RUNNING) - (old is not None and old.phase == RUNNING)
        if old is not None:
            self._release(old.spec)
        space.pods[meta.name] = new
        former = old if old is not None and pod_codec.is_same(old, new.started) else None
        if former is None:
            space.became_ready.forget(new.name)  # another pod had the name, as in a StatefulSet
        self._record_ready(space, former, new)
        if not space.selections:
            return
        start = self._find_start(pod, former, new)
        if start is not None:
            space.notify_started(new.labels, start)
        if (
            old is not None
            and old.starting != new.starting
            and msgspec.structs.replace(new, starting=old.starting) == old
        ):
            # What a pod waits for is shown, and no decision depends on it.
            for selection in space.matching(new.labels):
                selection.touch(0, 0.0)
        else:
            self._update_selections(space, old, new)

    def lose(self, lost: Unreadable) -> None:
        """Note that a pod cannot be read: its last state counts, or it is one without a value."""
        space = self._spaces.get(lost.namespace)
        if space is None or lost.name not in space.pods:
            self.put(pod_codec.lose(lost))

    def _find_start(self, pod: WirePod, old: WatchedPod | None, new: WatchedPod) -> PodStart | Outcome | None:
        """Return the start of a pod that is Ready for the first time or has ended before, None for others.

        Of a pod that the first list shows Ready it is unknown whether that was the first time.
        """
        if new.ready == "True":
            if not (self.synced if old is None else old.starting):
                return None
            created, status = pod.metadata.creation_timestamp, pod.status
            flags = 0 if old is None else old.starting
            return pod_starts.measure_pod(created, status.conditions, status.container_statuses, flags)
        has_ended = new.phase not in pod_codec.UNFINISHED and old is not None and bool(old.starting)
        return Outcome.ENDED if has_ended else None

    def remove(self, namespace: str, name: str) -> None:
        space = self._spaces.get(namespace)
        old = space.pods.pop(name, None) if space else None
        if space is None or old is None:
            return
        self.index.remove(namespace, name)
        space.became_ready.forget(name)
        self._release(old.spec)
        self.running -= old.phase == RUNNING
        if old.starting:
            space.notify_started(old.labels, Outcome.ENDED)
        self._update_selections(space, old, None)
        space.forget_if_empty()

    def _record_ready(self, space: PodNamespace, old: WatchedPod | None, new: WatchedPod) -> None:
        """Note when a pod became ready, or that it is not any more."""
        is_ready, was_ready = new.running_and_ready, old is not None and old.running_and_ready
        if is_ready == was_ready:
            return
        if not is_ready:
            space.became_ready.lapse(new.name)
            return
        now = self.clock.monotonic()
        # The watch has just shown it, unless this is the pod's first event. Conditions have whole seconds.
        age = 0.0 if old is not None else self.clock.wall() - 1 - new.ready_since / SECOND
        if age < RECENT_SECONDS:
            space.became_ready.record(new.name, now - max(0.0, age), now)

    def _update_selections(self, space: PodNamespace, old: WatchedPod | None, new: WatchedPod | None) -> None:
        """Update the selections that had the pod or have it now."""
        now = self.clock.monotonic()
        before = space.matching(old.labels) if old is not None else []
        after = before if old is not None and new is not None and old.labels is new.labels else None
        if after is None:
            after = space.matching(new.labels) if new is not None else []
            space.generation += 1
        was_ready = old is not None and old.running_and_ready
        is_ready = new is not None and new.running_and_ready
        ready = dict.fromkeys(before, -was_ready)
        for selection in after:
            ready[selection] = ready.get(selection, 0) + is_ready
        for selection, change in ready.items():
            selection.touch(change, now)
            self._touched[selection] = None

    def end_batch(self) -> None:
        """Notify the subscribers of what changed, once the first list is in."""
        for _ in self._notify():
            pass

    def listed(self, namespace: str) -> Iterator[None]:
        """End a list: what was before is unknown, and subscribers are notified of what changed."""
        now, defects = self.clock.monotonic(), self._context.problems.defects
        known = tuple(self._selections(namespace))
        yield from in_steps(known, lambda selection: selection.history.restart(now), defects, _STEP)
        if self.synced and not self._announced:
            self._announced, self._touched = True, dict.fromkeys(self._selections(""))
        yield from self._notify()

    def _notify(self) -> Iterator[None]:
        touched: dict[Selection, None] = {}
        if self.synced:
            # taken first: what a follower changes in turn is for the next time
            touched, self._touched = self._touched, touched
        return in_steps(touched, Selection.notify, self._context.problems.defects)

    def _selections(self, namespace: str) -> Iterator[Selection]:
        for space in self._spaces.values():
            if namespace in {"", space.name}:
                yield from space.selections.values()

    def _release(self, spec: SharedSpec) -> None:
        spec.users -= 1
        if not spec.users:
            del self._specs[spec.key]

    def _space(self, namespace: str) -> PodNamespace:
        space = self._spaces.get(namespace)
        if space is None:
            name = sys.intern(namespace)
            space = self._spaces[name] = PodNamespace(name, self, self._spaces)
        return space
