"""The floors of raised autoscalers as metrics: one external, and one of each HorizontalPodAutoscaler itself.

Here: which questions have an answer, and what it is. Not here: when a floor begins and ends (`autoscaler.decide.boost`), where floors are kept
(`boost.view`), who is boosted (the autoscalers' cache). The law: an old 0 is never answered. A floor is answered from what is known;
before a 0 the floors are read anew, and who cannot read them answers an error, for an autoscaler with an error does not shrink.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from adapter.boost.floor import FloorEntry, floor_of
from adapter.boost.model import LABEL, METRIC
from adapter.errors import BadRequestError, InternalError, NotFoundError, NotSyncedError
from adapter.model.autoscaling.fastpath_autoscaler import HPA_API_VERSION, HPA_KIND
from adapter.model.clock import Clock
from adapter.model.metrics import (
    CustomAnswer,
    CustomMetricInfo,
    CustomQuestion,
    ExternalAnswer,
    ExternalQuestion,
    ExternalValue,
    GroupResource,
    MetricValue,
    ObjectReference,
)
from adapter.model.selectors.label_selectors import EVERYTHING, LabelSelector, Operator
from adapter.model.timestamps import SECOND

RESERVED = frozenset({METRIC})
"""The names that no rule may give where floors are served."""

AUTOSCALERS = GroupResource("autoscaling", "horizontalpodautoscalers")
FLOOR_METRIC = CustomMetricInfo(AUTOSCALERS, namespaced=True, metric=METRIC)
"""The floor as a metric of autoscalers."""

_SPELLINGS = frozenset({str(AUTOSCALERS), AUTOSCALERS.resource})
_EQUALITY = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS})
_KEPT_NEVER = -math.inf

_ONE_EQUALITY = f"the metric {METRIC} is asked for with labelSelector={LABEL}=NAME and nothing else"
_ONE_NAME = f"the metric {METRIC} is asked for of one autoscaler by its name, without a selector"
_AUTOSCALERS_UNKNOWN = "the autoscalers are not known now"
_FLOORS_UNKNOWN = "the floors of autoscalers are not known now"


class Watched(NamedTuple):
    """A HorizontalPodAutoscaler as the cache has it. `boosts`: its mode is boost, and its handshake right."""

    uid: str
    resource_version: str
    max_replicas: int
    boosts: bool


class FindAutoscaler(Protocol):
    """The cache of the cluster's autoscalers."""

    def __call__(self, namespace: str, name: str) -> Watched | None:
        """Return a HorizontalPodAutoscaler, None where there is none; NotSyncedError before the first list."""
        ...


class Floors(Protocol):
    """What is known of the published floors."""

    def find(self, uid: str) -> FloorEntry | None:
        """Return what is published of the autoscaler of a uid; NotSyncedError where what is known is too old."""
        ...

    def entries(self) -> Mapping[str, FloorEntry]:
        """Return all that is published, by uid; there are few."""
        ...

    async def confirm(self) -> None:
        """Read the floors anew, in a read that began after this call did; NotSyncedError where that fails."""
        ...


class FloorProvider:
    """Answers questions about `boosting.METRIC`, each with exactly one value, which nobody may keep."""

    def __init__(self, find_hpa: FindAutoscaler, floors: Floors, clock: Clock) -> None:
        self._find_hpa = find_hpa
        self._floors = floors
        self._clock = clock

    async def external(self, question: ExternalQuestion) -> ExternalAnswer:
        """Return the floor of the autoscaler that the selector names; StatusError, of a sentence for its author."""
        name = _name_of(question.selector)
        replicas = await self._replicas(question.namespace, name)
        value = ExternalValue(METRIC, {LABEL: name}, replicas * 1000, self._clock.wall())
        return ExternalAnswer((value,), _KEPT_NEVER)

    async def custom(self, question: CustomQuestion) -> CustomAnswer:
        """Return the floor of the autoscaler that the question names; of other kinds there is no such metric."""
        if question.resource not in _SPELLINGS or question.namespace is None:
            raise NotFoundError(f"the server could not find the metric {METRIC} for {question.resource}")
        if question.name is None or question.selector != EVERYTHING:
            raise BadRequestError(_ONE_NAME)
        replicas = await self._replicas(question.namespace, question.name)
        described = ObjectReference(HPA_KIND, question.namespace, question.name, HPA_API_VERSION)
        value = MetricValue(described, METRIC, replicas * 1000, self._clock.wall())
        return CustomAnswer((value,), _KEPT_NEVER)

    async def _replicas(self, namespace: str, name: str) -> int:
        """Return the floor as it is now. Where that cannot be read a floor of some seconds ago still holds; a zero of then says nothing."""
        unread: NotSyncedError | None = None
        self._floor(namespace, name)  # who asks for what there is not costs no reading
        try:
            await self._floors.confirm()
        except NotSyncedError as error:
            unread = error
        floor = self._floor(namespace, name)
        if floor == 0 and unread is not None:
            raise InternalError(_FLOORS_UNKNOWN) from unread
        return floor

    def _floor(self, namespace: str, name: str) -> int:
        """Return the floor as it is known now.

        Where the cache of autoscalers is behind what a floor was made from, the floor counts as its maker meant it: an annotation that
        is not seen yet, an older maximum and a uid of before do not end it.
        """
        try:
            hpa = self._find_hpa(namespace, name)
        except NotSyncedError as error:
            raise InternalError(_AUTOSCALERS_UNKNOWN) from error
        if hpa is None:
            raise NotFoundError(f'{AUTOSCALERS} "{name}" not found in the namespace "{namespace}"')
        now = int(self._clock.wall() * SECOND)
        try:
            own = self._floors.find(hpa.uid)
            known = self._floors.entries().values()
        except NotSyncedError as error:
            raise InternalError(_FLOORS_UNKNOWN) from error
        floor = floor_of(own, now, hpa.max_replicas) if hpa.boosts else 0
        for entry in known:
            of_it = entry.name == name and entry.namespace == namespace
            if of_it and _is_newer(entry.seen, hpa.resource_version):
                floor = max(floor, floor_of(entry, now, entry.replicas))
        return floor


def _name_of(selector: LabelSelector) -> str:
    """Return the autoscaler that a selector names. An autoscaler adds up all items of an answer, so one at a time is asked for."""
    if len(selector.requirements) == 1:
        key, operator, values = selector.requirements[0]
        if key == LABEL and operator in _EQUALITY and values[0]:
            return values[0]
    raise BadRequestError(_ONE_EQUALITY)


def _is_newer(seen: str, cached: str) -> bool:
    """Tell whether a resource version is newer than that of the cache; one that cannot be compared is, unless it is the same."""
    if not seen or seen == cached:
        return False
    if seen.isdecimal() and cached.isdecimal():
        return int(seen) > int(cached)
    return True
