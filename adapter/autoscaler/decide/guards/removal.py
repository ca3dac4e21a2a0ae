"""Which pods a scale-down is to remove: the idlest, by a deletion cost that is written shortly before it.

A ReplicaSet that has too many pods deletes them in this order (``ActivePodsWithRanks`` of Kubernetes 1.36):
those that are not Ready, the Ready ones with the lowest cost, those that share a node, the youngest. A pod
without the annotation costs 0. So k negative costs are enough for the k idlest pods to go, and the others
need none. Pods that are not Ready go before them, and so do those with a negative cost of another writer:
that many costs fewer are written.

Load moves between the mark and the scale-down. A pod that is no longer among the k idlest loses its mark to
an idler one. That one has to be clearly idler (`_CLEARLY`): values of one size change places with each
sample.

The HPA controller's own scale-down of a boosted HorizontalPodAutoscaler is foreseen. It decides from the same
values by the same rules, once in a sync period: what these rules give at the end of the next one is what it
is about to write.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from adapter.autoscaler.decide import behavior
from adapter.autoscaler.decide.guards.boost import Boosting
from adapter.autoscaler.decide.observation import is_active
from adapter.autoscaler.decide.sync import Decision
from adapter.model.objects.pods import PodFacts

KEEP_SECONDS = 30
"""How long a cost stays on a pod that nothing wants away: two sync periods of the HPA controller."""

_SERVED_BY_REPLICA_SETS = frozenset({"Deployment", "ReplicaSet", "ReplicationController"})

TEMPLATE_HASH = "pod-template-hash"
"""The end of the name of a label that ReplicaSets of Deployments, and of Argo Rollouts, give their pods."""


_CLEARLY = (3, 4)
"""A marked pod is exchanged for one that has less than this share of its value."""


class Chosen(NamedTuple):
    """A pod that is to go, and the cost to write for that."""

    pod: str
    cost: int


class Choice(NamedTuple):
    """The costs to write, and the marked pods that lose theirs to idler ones."""

    costs: tuple[Chosen, ...]
    exchanged: tuple[str, ...] = ()

    def without_exchange(self) -> "Choice":
        """Return the costs that are written besides those of an exchange, which come last."""
        return Choice(self.costs[: len(self.costs) - len(self.exchanged)])


def goes_first(pod: PodFacts, marked: Container[str]) -> bool:
    """Tell whether an active pod goes before those without a cost. `marked` pods have one of ours."""
    return not pod.running_and_ready or pod.name in marked or (pod.cost or 0) < 0


def count_active(pods: Iterable[PodFacts]) -> int:
    return sum(map(is_active, pods))


def choose(
    pods: Sequence[PodFacts], values: Mapping[str, int], count: int, marked: Container[str] = ()
) -> Choice:
    """Return what has to be written so that the `count` pods that go are the idlest.

    `values` are those of the pods by name; a pod without one, and one with a cost of another writer, keeps
    its place in Kubernetes' order. `marked` pods have a cost of ours. Of equal pods the youngest go. The
    idlest pod costs minus the number of pods, each next one 1 more: if fewer go than were foreseen, they are
    the idlest, and pods that are marked later need no other cost of those that were marked before.
    """
    ranked = []
    for pod in filter(is_active, pods):
        if pod.running_and_ready and pod.name in values and (pod.name in marked or pod.cost is None):
            ranked.append((values[pod.name], -pod.ready_since, pod.name))
        elif goes_first(pod, marked):
            count -= 1
    places: dict[str, Chosen] = {}
    held: list[str] = []
    free: list[str] = []
    for cost, (_, _, name) in enumerate(sorted(ranked), -count_active(pods)):
        places[name] = Chosen(name, cost)
        (held if name in marked else free).append(name)
    more = max(0, count - len(held))
    written, free = free[:more], free[more:]
    exchanged: list[str] = []
    part, whole = _CLEARLY
    for name, idler in zip(reversed(held), free, strict=False):
        if whole * values[idler] >= part * values[name]:
            break
        exchanged.append(name)
        written.append(idler)
    return Choice(tuple(places[name] for name in written), tuple(exchanged))


def count_idle(pods: Sequence[PodFacts], values: Mapping[str, int], most: int) -> int:
    """Return how many pods may go at once: those that are not Ready, or have a value of `most` or less."""
    return sum(
        not pod.running_and_ready or values.get(pod.name, most + 1) <= most for pod in pods if is_active(pod)
    )


def foresee(decision: Decision, memory: Boosting, current: int, at: int) -> int:
    """Return the count that the HPA controller will have by `at` if nothing changes, at most `current`.

    `decision` is the one for the HPA that was made last. A floor that still holds then keeps the count up.
    """
    spec, wanted = decision.spec, decision.wanted
    if wanted is None or spec.up is None or spec.down is None or current <= 0:
        return current
    normalized = behavior.normalize(wanted, current, spec.limits, spec.up, spec.down, decision.history, at)
    held = 0 if memory.floor is None or memory.floor.until <= at else memory.floor.replicas
    return min(current, max(normalized.replicas, held))


def has_replica_set(kind: str, pods: Sequence[PodFacts]) -> bool:
    """Tell whether the pods of a target of some kind are deleted by a ReplicaSet, which heeds their costs."""
    if kind in _SERVED_BY_REPLICA_SETS:
        return True
    return any(label.endswith(TEMPLATE_HASH) for pod in pods for label in pod.labels)
