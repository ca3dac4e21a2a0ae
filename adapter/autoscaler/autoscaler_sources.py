"""Where the autoscalers stand that are ours: objects of the cluster, or documents in files.

Here: following what becomes of them, and all there are when a term begins. Not here: reading them (`kubernetes.cache.hpas`,
`autoscaler.autoscaler_files`), who is told of each (`roster`), HorizontalPodAutoscalers that ask for something (`natives`). Law: what cannot
be read stays as it was, and is said.
"""

import abc
import asyncio
import logging
from collections.abc import Iterable, Sequence

from adapter.autoscaler.autoscaler_files import AutoscalerFiles, Read
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import Roster
from adapter.kubernetes.cache.hpas import Autoscalers
from adapter.kubernetes.cache.list_watch import ReflectorContext
from adapter.kubernetes.cache.store import STEP
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.telemetry.logs import facts
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

_FILES_PERIOD = 2.0
"""How often, in seconds, the files of autoscalers are looked at."""


class Origin(abc.ABC):
    """The autoscalers of one place, in the roster while `run` runs."""

    def __init__(self, roster: Roster, faults: ProblemLog) -> None:
        self._roster = roster
        self._faults = faults

    @abc.abstractmethod
    async def run(self) -> None:
        """Follow them until cancelled."""

    @property
    @abc.abstractmethod
    def synced(self) -> bool:
        """Whether it is known which there are."""

    @abc.abstractmethod
    def find(self, key: Key) -> FastPathAutoscaler | None:
        """Return one, None if it is not there or cannot be read."""

    @abc.abstractmethod
    def _keys(self) -> Iterable[Key]:
        """Return what can be found."""

    async def put_all(self) -> None:
        """Take all there are, in steps, each as it is by then."""
        for count, key in enumerate(tuple(self._keys()), 1):
            autoscaler = self.find(key)
            if autoscaler is not None:
                self._roster.put(autoscaler)
            if count % STEP == 0:
                await asyncio.sleep(0)


class InCluster(Origin):
    """FastPathAutoscalers of the cluster."""

    def __init__(
        self,
        roster: Roster,
        faults: ProblemLog,
        watching: ReflectorContext,
        namespaces: Sequence[str],
    ) -> None:
        super().__init__(roster, faults)
        self._objects = Autoscalers(watching, self._changed, namespaces)

    async def run(self) -> None:
        """Watch them until cancelled."""
        await self._objects.run()

    @property
    def synced(self) -> bool:
        """Whether the first list is in."""
        return self._objects.synced

    def find(self, key: Key) -> FastPathAutoscaler | None:
        """Return one, None if it is not there or cannot be read."""
        found = self._objects.find(*key)
        return None if found is None else found.autoscaler

    def _keys(self) -> Iterable[Key]:
        return (Key(each.namespace, each.name) for each in self._objects if each.autoscaler is not None)

    def _changed(self, namespace: str, name: str) -> None:
        """Follow an object of the cluster; one that cannot be read is left as it was and said."""
        found = self._objects.find(namespace, name)
        subject = f"{namespace}/{name}"
        if found is not None and found.faults:
            self._faults.report(
                "autoscaler", "an autoscaler cannot be read", str(found.faults[0]), subject=subject
            )
            return
        self._faults.resolve("autoscaler", subject=subject)
        if found is None or found.autoscaler is None:
            self._roster.remove(Key(namespace, name))
        else:
            self._roster.put(found.autoscaler)


class InFiles(Origin):
    """Autoscalers in files, of which `read` was read first; those outside `namespaces` are left out."""

    def __init__(
        self,
        roster: Roster,
        faults: ProblemLog,
        files: AutoscalerFiles,
        read: Read,
        namespaces: Sequence[str],
    ) -> None:
        super().__init__(roster, faults)
        self._files = files
        self._namespaces = namespaces
        self._found: dict[Key, FastPathAutoscaler] = {}
        self._left_out: set[Key] = set()
        self._adopt(read)

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(_FILES_PERIOD)
            read = self._files.poll()
            if read is not None:
                self._adopt(read)

    @property
    def synced(self) -> bool:
        """Always: they are read before anything runs."""
        return True

    def find(self, key: Key) -> FastPathAutoscaler | None:
        """Return one, None if it is not there."""
        return self._found.get(key)

    def _keys(self) -> Iterable[Key]:
        return self._found

    def _adopt(self, read: Read) -> None:
        """Take what files say; a fault in one leaves its autoscalers as they were."""
        if read.faults:
            text = "; ".join(map(str, read.faults))
            self._faults.report("autoscaler-files", "a file of autoscalers cannot be used", text)
        else:
            self._faults.resolve("autoscaler-files")
        found = {Key(each.metadata.namespace, each.metadata.name): each for each in read.autoscalers}
        strange = {key for key in found if key.namespace not in self._namespaces}
        for key in strange:
            text = f"{key} is in a namespace that is not watched: it is after a restart"
            self._faults.report("autoscaler-files", "an autoscaler is left out", text, subject=str(key))
            del found[key]
        for key in self._left_out - strange:
            self._faults.resolve("autoscaler-files", subject=str(key))
        self._left_out = strange
        for key in self._found.keys() - found.keys():
            self._roster.remove(key)
        self._found = found
        for autoscaler in found.values():
            self._roster.put(autoscaler)
        _log.info("autoscalers in files", extra=facts(count=len(found)))
