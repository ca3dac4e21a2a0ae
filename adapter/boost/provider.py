"""Serves the floors as the metric ``fastpath_replicas``: an external metric, and one of each HPA object.

**What a floor is.** When fresh values ask for more replicas, Fastpath writes the Scale of the target at once.
The HPA would revert that at its next sync, at most 15 s later, because it computes from its own, older
values. So it reads the raised count as one more metric, its floor: an HPA follows its highest metric, and
keeps the raise. Without a raise the floor is 0, and the HPA decides as it would without Fastpath. The floor
is published before the Scale is written, so the HPA cannot read an older one after the raise (`publisher`).

**When it ends.** `autoscaler.decide.guards.boost` decides that; usually it is the `hold` after the HPA has
shown the raised count in its status. A floor also carries its end as a time, and every reader applies it: no
floor outlives the owner that published it by more than ten minutes, even if the clock of that owner was
ahead.

**What happens at failover.** The floors are in a ConfigMap for each slice. All replicas of the metrics API
read it, so the floor stays while no owner runs. The next owner takes the floors over before it decides for
any boosted HPA, and writes the ConfigMap once, which shuts out writes of the previous owner that are still
under way.

**No old 0 is served.** An HPA does not scale down while one of its metrics fails. So a 0 is returned only
after a read that began after the request; if that read fails, a floor of the last seconds is still served,
and in place of a 0 the request fails. See docs/decisions/fresh-floors.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from adapter.boost.view import FloorView, PublishedFloors
from adapter.errors import BadRequestError, InternalError, NotFoundError, NotSyncedError
from adapter.model import metrics
from adapter.model.autoscaling.boost import LABEL, METRIC
from adapter.model.autoscaling.fastpath_autoscaler import HPA_API_VERSION, HPA_KIND
from adapter.model.autoscaling.floor import floor_of, greatest, is_newer
from adapter.model.clock import Clock
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector, Operator
from adapter.model.timestamps import SECOND

RESERVED = frozenset({METRIC})
"""Metric names that rules may not have if floors are served."""

AUTOSCALERS = metrics.GroupResource("autoscaling", "horizontalpodautoscalers")
FLOOR_METRIC = metrics.CustomMetricInfo(AUTOSCALERS, namespaced=True, metric=METRIC)

_SPELLINGS = frozenset({str(AUTOSCALERS), AUTOSCALERS.resource})
_EQUALITY = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS})
_NOT_CACHED = -math.inf

_FLOORS_UNKNOWN = "the published floors cannot be read now"
_FLOORS_IN_DOUBT = "the floors end at times, and this server's clock may differ from that of the API server"


class ObservedHPA(NamedTuple):
    """An HPA as the cache has it. `boosts` says that its mode is boost and its handshake right."""

    uid: str
    resource_version: str
    max_replicas: int
    boosts: bool


@dataclass(slots=True, eq=False)
class FloorProvider:
    """Answers requests for `METRIC`, each with exactly one value, which must not be cached.

    `find_hpa` returns the HPA of a namespace and a name from a cache; NotSyncedError before its first list.
    While there is a `doubt` about the clock requests fail: an HPA then scales up, and not down.
    """

    find_hpa: Callable[[str, str], ObservedHPA | None]
    floors: FloorView
    clock: Clock
    doubt: Callable[[], str] = lambda: ""

    async def external(self, question: metrics.ExternalQuestion) -> metrics.ExternalAnswer:
        """Return the floor of the HPA that the selector names; StatusError."""
        name = _name_of(question.selector)
        replicas = await self._replicas(question.namespace, name)
        value = metrics.ExternalValue(METRIC, {LABEL: name}, replicas * 1000, self.clock.wall())
        return metrics.ExternalAnswer((value,), _NOT_CACHED)

    async def custom(self, question: metrics.CustomQuestion) -> metrics.CustomAnswer:
        """Return the floor of the HPA that the question names; StatusError for objects of another kind."""
        if question.resource not in _SPELLINGS or question.namespace is None:
            raise NotFoundError(f"the server could not find the metric {METRIC} for {question.resource}")
        if question.name is None or question.selector != EVERYTHING:
            raise BadRequestError(f"the metric {METRIC} is read for one HPA by its name, without a selector")
        replicas = await self._replicas(question.namespace, question.name)
        described = metrics.ObjectReference(HPA_KIND, question.namespace, question.name, HPA_API_VERSION)
        value = metrics.MetricValue(described, METRIC, replicas * 1000, self.clock.wall())
        return metrics.CustomAnswer((value,), _NOT_CACHED)

    async def _replicas(self, namespace: str, name: str) -> int:
        """Return the floor of an HPA now. A 0 comes only from a read that began after the request."""
        self._find(namespace, name)  # a request for an unknown HPA costs no read
        try:
            floors = await self.floors.current()
        except NotSyncedError as error:
            recent = self.floors.recent()
            floor = 0 if recent is None else self._floor(recent, self._find(namespace, name), namespace, name)
            if not floor:
                raise InternalError(_FLOORS_UNKNOWN) from error
            return floor
        if self.doubt():
            raise InternalError(_FLOORS_IN_DOUBT)
        return self._floor(floors, self._find(namespace, name), namespace, name)

    def _find(self, namespace: str, name: str) -> ObservedHPA:
        try:
            hpa = self.find_hpa(namespace, name)
        except NotSyncedError as error:
            raise InternalError("the HPAs are not listed yet") from error
        if hpa is None:
            raise NotFoundError(f'{AUTOSCALERS} "{name}" not found in the namespace "{namespace}"')
        return hpa

    def _floor(self, floors: PublishedFloors, hpa: ObservedHPA, namespace: str, name: str) -> int:
        """Return the greatest floor that counts for an HPA.

        If the cache of HPAs is behind the version that a floor was made from, the floor counts as the owner
        meant it: an annotation that is not cached yet, an older maximum or an older uid do not end it.
        """
        now = int(self.clock.wall() * SECOND)
        floor = 0
        for uid, published in floors.find(namespace, name, self.clock.monotonic()):
            if uid == hpa.uid and hpa.boosts:
                floor = max(floor, floor_of(published, now, hpa.max_replicas))
            if is_newer(published.seen, hpa.resource_version):
                floor = max(floor, floor_of(published, now, greatest(published)))
        return floor


def _name_of(selector: LabelSelector) -> str:
    """Return the HPA that a selector names. One at a time: an HPA adds up all items of an external metric."""
    if len(selector.requirements) == 1:
        key, operator, values = selector.requirements[0]
        if key == LABEL and operator in _EQUALITY and values[0]:
            return values[0]
    raise BadRequestError(f"the metric {METRIC} takes labelSelector={LABEL}=NAME and no other selector")
