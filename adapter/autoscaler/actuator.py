"""Writing what was decided, through the one door of a term: Scales, statuses, events.

Here: from an autoscaler and a decision to what the writers take. Not here: the fence, the budget, the wire (`kubernetes.write.client` and those
on top of it). Law: a Scale is awaited, statuses and events are not; nothing is written about an autoscaler that stands in a file.
"""

import functools
import logging
from collections.abc import Mapping

from adapter.autoscaler.decide.decision import Event
from adapter.autoscaler.interfaces import Again, Current, Key, Outcome, Target
from adapter.errors import KubernetesError
from adapter.kubernetes.write.client import may_have_been_made
from adapter.kubernetes.write.event_correlator import Regarding
from adapter.kubernetes.write.events import EventRecorder
from adapter.kubernetes.write.scale import ScaleOf, ScaleWriter
from adapter.kubernetes.write.status import StatusUpdate, StatusWriter
from adapter.model.autoscaling import fastpath_autoscaler, target_column
from adapter.model.autoscaling.fastpath_autoscaler import (
    API_VERSION,
    GROUP,
    KIND,
    PLURAL,
    FastPathAutoscaler,
    PastChange,
)
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.telemetry.logs import facts

_log = logging.getLogger(__name__)
_VERSION = API_VERSION.rpartition("/")[2]


class _ScaleHands:
    """Writes Scales."""

    def __init__(self, scales: ScaleWriter) -> None:
        self._scales = scales

    async def scale(self, key: Key, target: Target, replicas: int, again: Again, current: Current) -> Outcome:
        """Write a count and say what became of it; see `seams.Hands`. NotLeadingError goes through."""
        scale = ScaleOf(target.path, key.namespace, target.path.split("/")[-2])
        try:
            written = await self._scales.write(scale, replicas, target.resource_version, again, current)
        except KubernetesError as error:
            return Outcome(error=error.said or str(error), unknown=may_have_been_made(error))
        return Outcome() if written is None else Outcome(written.resource_version)


class ClusterHands(_ScaleHands):
    """Writes about objects of the cluster."""

    def __init__(self, scales: ScaleWriter, statuses: StatusWriter, events: EventRecorder) -> None:
        super().__init__(scales)
        self._statuses = statuses
        self._events = events

    def status(
        self,
        autoscaler: FastPathAutoscaler,
        status: HorizontalPodAutoscalerStatus,
        changes: tuple[PastChange, ...],
    ) -> None:
        """Have a status written, with the changes that policies still count; that of a native autoscaler is not ours to write."""
        if autoscaler.kind != KIND:
            return
        meta = autoscaler.metadata
        path = f"/apis/{GROUP}/{_VERSION}/namespaces/{meta.namespace}/{PLURAL}/{meta.name}/status"
        document = functools.partial(_render_status, autoscaler, status, changes)
        update = StatusUpdate(
            meta.namespace, meta.name, meta.uid, path, meta.resource_version, status, document
        )
        seen = autoscaler.status
        self._statuses.submit(update, None if seen is None else fastpath_autoscaler.plain_status(seen))

    def event(self, autoscaler: FastPathAutoscaler, event: Event) -> None:
        """Have an event written."""
        meta = autoscaler.metadata
        regarding = Regarding(
            autoscaler.api_version,
            autoscaler.kind,
            meta.namespace,
            meta.name,
            meta.uid,
            meta.resource_version,
        )
        self._events.record(regarding, event.type, event.reason, event.message)

    def forget(self, autoscaler: FastPathAutoscaler) -> None:
        """Write nothing more about an autoscaler that is gone."""
        if autoscaler.kind == KIND:  # one of another kind may have the same name
            self._statuses.forget(autoscaler.metadata.namespace, autoscaler.metadata.name)


def _render_status(
    autoscaler: FastPathAutoscaler, status: HorizontalPodAutoscalerStatus, changes: tuple[PastChange, ...]
) -> Mapping[str, object]:
    metrics = fastpath_autoscaler.as_hpa(autoscaler).spec.metrics or ()
    targets = target_column.describe_targets(metrics, status.current_metrics or ())
    return fastpath_autoscaler.status_to_plain(fastpath_autoscaler.full_status(status, changes, targets))


class FileHands(_ScaleHands):
    """Writes Scales alone: autoscalers in files have no status, and their events go to the log."""

    def status(
        self,
        autoscaler: FastPathAutoscaler,
        status: HorizontalPodAutoscalerStatus,
        changes: tuple[PastChange, ...],
    ) -> None:
        """Write nothing: a file has no status."""

    def event(self, autoscaler: FastPathAutoscaler, event: Event) -> None:
        """Say what changed a count; what is said at every decision would drown it."""
        if event.reason in _SAID:
            meta = autoscaler.metadata
            name = f"{meta.namespace}/{meta.name}"
            _log.info(
                "event",
                extra=facts(autoscaler=name, type=event.type, reason=event.reason, message=event.message),
            )

    def forget(self, autoscaler: FastPathAutoscaler) -> None:
        """Nothing is kept."""


_SAID = frozenset(
    {
        "SuccessfulRescale",
        "FailedRescale",
        "ForeignWriter",
        "ForeignAutoscaler",
        "FallbackStarted",
        "FallbackEnded",
    }
)
