"""The pods of the cluster as decisions need them: one watch, the slimmest record of each, and the pods behind each selector.

What lives here: who follows which selector, and what is kept up to date for them. Not here: the record of a pod (`podforms`), how few
were ready lately (`readyhistory`), the reflector (`mirror`), the label index (`objectstore`). The law: until the first list is in the answer is
"not synced"; a pod costs a few hundred bytes, and nothing that exists once per pod is seen by the garbage collector.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from adapter import errors
from adapter.kubernetes.cache import pod_codec
from adapter.kubernetes.cache.mirror import Mirror, WholeClient, in_steps
from adapter.kubernetes.cache.pod_codec import SharedSpec, WatchedPod, WirePod, WireSpec
from adapter.kubernetes.cache.ready_history import ReadyHistory
from adapter.kubernetes.cache.reflector import ReflectorStatus, Surroundings
from adapter.kubernetes.cache.store import Store
from adapter.model.clock import Clock
from adapter.model.resources import BUILTIN, APIResource
from adapter.model.selectors.label_selectors import LabelSelector, Operator
from adapter.model.timestamps import SECOND

_found = BUILTIN.lookup("pods")
assert _found is not None
_PODS: APIResource = _found

_STEP = 1_000
_EQUALITY = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS})


class Selection:
    """The pods of a namespace that match a selector, kept up to date; shared by all who follow them."""

    def __init__(self, space: "_Namespace", selector: LabelSelector, now: float) -> None:
        self._space = space
        self.namespace = space.name
        self.selector = selector
        self.followers: list[Following] = []
        self._pods: tuple[WatchedPod, ...] | None = None
        self._selected_by: tuple[int, tuple[str, ...]] = (-1, ())
        self.history = ReadyHistory(sum(pod.running_and_ready for pod in self.pods), now)

    @property
    def pods(self) -> tuple[WatchedPod, ...]:
        """The pods in list order, terminating and completed ones among them."""
        if self._pods is None:
            self._pods = self._space.select(self.selector)
        return self._pods

    @property
    def selected_by(self) -> tuple[str, ...]:
        """Who follows any of these pods, sorted; nobody where there are no pods."""
        generation = self._space.generation
        if self._selected_by[0] != generation:
            self._selected_by = generation, self._space.followers_of(self.pods)
        return self._selected_by[1]

    def touch(self, ready: int, now: float) -> None:
        """Note that a pod came, went or became another; `ready` is by how many more are ready."""
        self._pods = None
        if ready:
            self.history.note(self.history.count + ready, now)


def _tell_followers(selection: Selection) -> None:
    for following in tuple(selection.followers):
        following.changed()


class Following:
    """One autoscaler's view of the pods it selects. `autoscaler` is its ``namespace/name``; `close` ends it."""

    def __init__(
        self, watch: "PodWatch", selection: Selection, autoscaler: str, changed: Callable[[], None]
    ) -> None:
        self._watch = watch
        self._selection = selection
        self.autoscaler = autoscaler
        self.changed = changed

    @property
    def pods(self) -> tuple[WatchedPod, ...]:
        """The pods in list order, terminating and completed ones among them; `errors.NotSyncedError` before the first list."""
        self._watch.check_synced()
        return self._selection.pods

    @property
    def ready(self) -> int:
        """How many of them run and are ready, terminating ones included."""
        self._watch.check_synced()
        return self._selection.history.count

    @property
    def selected_by(self) -> tuple[str, ...]:
        """Which autoscalers follow any of these pods, this one among them, sorted; none where there are no pods."""
        return self._selection.selected_by

    def min_ready(self, age: int) -> int | None:
        """Return the smallest number of ready pods within the last `age` nanoseconds.

        None where that is not known: followed for less time, longer ago than a quarter of an hour, or before the last list, between which
        and the watch before it anything may have happened.
        """
        now = self._watch.clock.monotonic()
        return self._selection.history.smallest(now - age / SECOND, now)

    def max_ready(self, age: int) -> int:
        """Return the largest number of ready pods that is known within the last `age` nanoseconds."""
        return self._selection.history.largest(self._watch.clock.monotonic() - age / SECOND)

    def close(self) -> None:
        """Stop following; nothing happens if it was closed before."""
        self._watch.drop(self._selection, self)


class _Namespace:
    """The pods of one namespace and who selects them. `generation` changes when somebody may select other pods than before."""

    def __init__(self, name: str, index: Store) -> None:
        self.name = name
        self.pods: dict[str, WatchedPod] = {}
        self.selections: dict[LabelSelector, Selection] = {}
        self.generation = 0
        self._index = index
        self._by_label: dict[tuple[str, str] | None, list[Selection]] = {}

    def select(self, selector: LabelSelector) -> tuple[WatchedPod, ...]:
        return tuple(map(self.pods.__getitem__, self._index.names(self.name, selector)))

    def add(self, selection: Selection) -> None:
        self.selections[selection.selector] = selection
        self._by_label.setdefault(_label_of(selection.selector), []).append(selection)
        self.generation += 1

    def discard(self, selection: Selection) -> None:
        del self.selections[selection.selector]
        label = _label_of(selection.selector)
        self._by_label[label].remove(selection)
        if not self._by_label[label]:
            del self._by_label[label]
        self.generation += 1

    def matching(self, labels: Mapping[str, str]) -> list[Selection]:
        """Return the selections that a pod with these labels is in."""
        candidates = [*self._by_label.get(None, ())]
        for label in labels.items():
            candidates += self._by_label.get(label, ())
        return [selection for selection in candidates if selection.selector.matches(labels)]

    def followers_of(self, pods: Iterable[WatchedPod]) -> tuple[str, ...]:
        different = {id(pod.labels): pod.labels for pod in pods}
        selections = {id(each): each for labels in different.values() for each in self.matching(labels)}
        return tuple(sorted({each.autoscaler for found in selections.values() for each in found.followers}))


def _label_of(selector: LabelSelector) -> tuple[str, str] | None:
    """Return a label that all pods of a selector have, by which it is looked for; None where it names none."""
    for requirement in selector.requirements:
        if requirement.operator in _EQUALITY:
            return requirement.key, requirement.values[0]
    return None


class PodWatch:
    """All pods of the cluster, or of `namespaces`, and what selectors find among them, while `run` runs.

    `client` and the client of `surroundings` may be one.
    """

    def __init__(
        self, client: WholeClient, surroundings: Surroundings, namespaces: Sequence[str] = ("",)
    ) -> None:
        self.clock: Clock = surroundings.clock
        self._index = Store(surroundings.monitoring)
        self._spaces: dict[str, _Namespace] = {}
        self._specs: dict[bytes, SharedSpec] = {}
        self._touched: dict[int, Selection] = {}
        self._told = False
        self._mirrors = [
            Mirror(
                pod_codec.FORM,
                _PODS,
                client,
                surroundings,
                _Part(self, namespace),
                name=f"pods in {namespace} (scaler)" if namespace else "pods (scaler)",
                namespace=namespace,
            )
            for namespace in namespaces
        ]

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(
                    mirror.run(), name=f"reflector of pods in {mirror.namespace or 'all namespaces'}"
                )

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """Whether the first list is in."""
        return all(mirror.synced for mirror in self._mirrors)

    def check_synced(self) -> None:
        """Raise `errors.NotSyncedError` before the first list is in."""
        for mirror in self._mirrors:
            if not mirror.synced:
                raise errors.NotSyncedError(
                    f"pods: the first list is not in yet{f': {mirror.error}' if mirror.error else ''}"
                )

    def status(self) -> tuple[ReflectorStatus, ...]:
        """Return what the watches say of themselves."""
        return tuple(mirror.status() for mirror in self._mirrors)

    def stale(self) -> str:
        """Return why what is known here may be out of date, "" where it is not.

        A watch that fails is out of date at once, for pods come and go within seconds.
        """
        for mirror in self._mirrors:
            status = mirror.status()
            if status.stale or status.last_error:
                silence = "never" if status.age is None else f"{status.age:.0f} s ago"
                return ": ".join(filter(None, (f"pods were last heard of {silence}", status.last_error)))
        return ""

    def __len__(self) -> int:
        return len(self._index)

    def find(self, namespace: str, name: str) -> WatchedPod | None:
        """Return a pod, None if there is none of that name; `errors.NotSyncedError` before the first list."""
        self.check_synced()
        space = self._spaces.get(namespace)
        return space.pods.get(name) if space else None

    def select(self, namespace: str, selector: LabelSelector) -> tuple[WatchedPod, ...]:
        """Return the pods that match, in list order; `errors.NotSyncedError` before the first list."""
        self.check_synced()
        space = self._spaces.get(namespace)
        return space.select(selector) if space else ()

    def follow(
        self, namespace: str, selector: LabelSelector, autoscaler: str, changed: Callable[[], None]
    ) -> Following:
        """Keep the pods that match at hand for an autoscaler (its ``namespace/name``).

        `changed` is called once the first list is in, and after each batch of events in which one of them came, went or became
        another in any fact; it must not block, and may close what it likes.
        """
        space = self._space(namespace)
        selection = space.selections.get(selector)
        if selection is None:
            selection = Selection(space, selector, self.clock.monotonic())
            space.add(selection)
        following = Following(self, selection, autoscaler, changed)
        selection.followers.append(following)
        space.generation += 1
        return following

    def drop(self, selection: Selection, following: Following) -> None:
        """End a following, as its `close` does."""
        if following not in selection.followers:
            return
        selection.followers.remove(following)
        space = self._spaces[selection.namespace]
        space.generation += 1
        if not selection.followers:
            space.discard(selection)
            self._forget_if_empty(space)

    # -- events --------------------------------------------------------------------------------------------------------

    def put(self, pod: WirePod) -> None:
        """Take a pod as it is now."""
        meta = pod.metadata
        space = self._space(meta.namespace)
        old = space.pods.get(meta.name)
        spec = self._spec_of(pod.spec)
        self._index.put(space.name, meta.name, meta.labels)
        labels = self._index.labels(space.name, meta.name)
        assert labels is not None
        new = pod_codec.build(pod, space.name, labels, spec)
        if new == old:
            return
        spec.users += 1
        if old is not None:
            self._release(old.spec)
        space.pods[meta.name] = new
        if space.selections:
            self._tell(space, old, new)

    def remove(self, namespace: str, name: str) -> None:
        """Forget a pod; nothing happens if it is not there."""
        space = self._spaces.get(namespace)
        old = space.pods.pop(name, None) if space else None
        if space is None or old is None:
            return
        self._index.remove(namespace, name)
        self._release(old.spec)
        self._tell(space, old, None)
        self._forget_if_empty(space)

    def _tell(self, space: _Namespace, old: WatchedPod | None, new: WatchedPod | None) -> None:
        """Bring the selections that had a pod or have it now up to date."""
        now = self.clock.monotonic()
        before = space.matching(old.labels) if old is not None else []
        after = before if old is not None and new is not None and old.labels is new.labels else None
        if after is None:
            after = space.matching(new.labels) if new is not None else []
            space.generation += 1
        was_ready = old is not None and old.running_and_ready
        is_ready = new is not None and new.running_and_ready
        for selection in before:
            stays = selection in after
            selection.touch((is_ready if stays else 0) - was_ready, now)
            self._touched[id(selection)] = selection
        for selection in after:
            if selection not in before:
                selection.touch(int(is_ready), now)
                self._touched[id(selection)] = selection

    def settle(self) -> None:
        """Tell followers what changed, once all lists are in."""
        if self.synced:
            touched, self._touched = self._touched, {}
            for selection in touched.values():
                _tell_followers(selection)

    def listed(self, namespace: str) -> Iterator[None]:
        """Note that a list of a namespace ("" for all) is in; yield wherever other work may run."""
        now = self.clock.monotonic()
        for count, selection in enumerate(tuple(self._selections(namespace)), 1):
            selection.history.restart(now)
            if count % _STEP == 0:
                yield
        if self.synced:
            touched, self._touched = self._touched, {}
            if not self._told:
                self._told = True
                touched = {id(selection): selection for selection in self._selections("")}
            yield from in_steps(touched.values(), _tell_followers)

    def _selections(self, namespace: str) -> Iterator[Selection]:
        for space in self._spaces.values():
            if namespace in {"", space.name}:
                yield from space.selections.values()

    def listing(self, namespace: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield namespaces with the names of their pods, that one alone unless it is ""."""
        for each, names in self._index.listing():
            if namespace in {"", each}:
                yield each, names

    def _spec_of(self, written: WireSpec) -> SharedSpec:
        key = pod_codec.key_of(written)
        found = self._specs.get(key)
        if found is None:
            found = self._specs[key] = pod_codec.share(written, key)
        return found

    def _release(self, spec: SharedSpec) -> None:
        spec.users -= 1
        if not spec.users:
            del self._specs[spec.key]

    def _space(self, namespace: str) -> _Namespace:
        found = self._spaces.get(namespace)
        if found is None:
            name = sys.intern(namespace)
            found = self._spaces[name] = _Namespace(name, self._index)
        return found

    def _forget_if_empty(self, space: _Namespace) -> None:
        if not space.pods and not space.selections:
            self._spaces.pop(space.name, None)


class _Part:
    """The pods of one namespace ("" for all) in a `PodWatch`, as a mirror of it keeps them."""

    def __init__(self, watch: PodWatch, namespace: str) -> None:
        self._watch = watch
        self._namespace = namespace

    def __len__(self) -> int:
        return sum(len(names) for _, names in self.listing()) if self._namespace else len(self._watch)

    def put(self, pod: WirePod) -> None:
        self._watch.put(pod)

    def remove(self, namespace: str, name: str) -> None:
        self._watch.remove(namespace, name)

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return self._watch.listing(self._namespace)

    def settle(self) -> None:
        self._watch.settle()

    def listed(self) -> Iterator[None]:
        return self._watch.listed(self._namespace)
