"""Applies decisions: a Scale is written at once, by the writer of its slice; the rest goes to the outbox."""

from collections.abc import Mapping

from adapter.autoscaler.decide.sync import Event
from adapter.kubernetes.write.events import EventOutlet, Regarding
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.scale import ScaleWriter
from adapter.kubernetes.write.status import StatusOutlet, StatusUpdate
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.fastpath_autoscaler import (
    API_VERSION,
    KIND,
    PLURAL,
    FastPathAutoscaler,
    PastChange,
)
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.pending_capacity import BacklogCredit


class Actuator(ScaleWriter):
    """Applies decisions about objects of the cluster. Only what `ScaleWriter` does may wait."""

    def __init__(self, outbox: Outbox, statuses: StatusOutlet, events: EventOutlet) -> None:
        super().__init__(outbox.find_writer)
        self._statuses = statuses
        self._events = events

    def status(
        self,
        autoscaler: FastPathAutoscaler,
        status: HorizontalPodAutoscalerStatus,
        changes: tuple[PastChange, ...],
        credited: tuple[BacklogCredit, ...] = (),
        limited_by: str = "",
    ) -> None:
        """Queue a status with what the next owner needs, and with what keeps the count where it is.

        The next owner needs the changes that policies count, and credits. The status of a
        HorizontalPodAutoscaler belongs to its controller.
        """
        if autoscaler.kind != KIND:
            return
        status = statuses.without_hpa(status)

        def render() -> Mapping[str, object]:
            metrics = fastpath_autoscaler.with_defaults(autoscaler).spec.metrics or ()
            targets = statuses.describe_targets(metrics, status.current_metrics or ())
            full = fastpath_autoscaler.full_status(status, changes, targets, credited, limited_by)
            return fastpath_autoscaler.status_to_plain(full)

        meta, seen = autoscaler.metadata, autoscaler.status
        path = f"/apis/{API_VERSION}/namespaces/{meta.namespace}/{PLURAL}/{meta.name}/status"
        update = StatusUpdate(
            meta.namespace, meta.name, meta.uid, path, meta.resource_version, status, render
        )
        self._statuses.put(update, None if seen is None else fastpath_autoscaler.plain_status(seen))

    def event(self, autoscaler: FastPathAutoscaler, event: Event) -> None:
        meta = autoscaler.metadata
        identity = meta.namespace, meta.name, meta.uid, meta.resource_version
        regarding = Regarding(autoscaler.api_version, autoscaler.kind, *identity)
        self._events.record(regarding, event.type, event.reason, event.message)

    def forget(self, autoscaler: FastPathAutoscaler) -> None:
        if autoscaler.kind == KIND:  # a HorizontalPodAutoscaler may have the same name
            self._statuses.forget(autoscaler.metadata.namespace, autoscaler.metadata.name)
