"""Where autoscalers are read from: objects of the cluster, files (--autoscalers), and boosted HPAs.

Each source keeps the registry up to date while it runs, and puts its autoscalers of a slice when a term
begins.
What cannot be read stays as it was, and is reported. Files are polled rather than watched, for the reasons in
`provider.rule_source`: a file with an error keeps its last valid autoscalers; only a deleted file removes
them.

At the beginning of a term no HorizontalPodAutoscaler is decided until the floors of the previous leader are
known. Each of them is handed over once, with its HPA; those of HPAs that no longer ask for boosting are
removed.
"""

import abc
import asyncio
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import AutoscalerRegistry
from adapter.boost.publisher import FloorWriter
from adapter.config.yaml import documents
from adapter.errors import Fault, InputError, KubernetesError, NotLeadingError
from adapter.kubernetes.cache.autoscalers import AutoscalerCache, HPACache, WatchedHPA
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import in_steps
from adapter.model.autoscaling import documents as autoscalerdocuments
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.floor import Floor, is_newer, is_over
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.provider import rule_source, text_files
from adapter.telemetry.logs import facts
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

_FLAG = "--autoscalers"
_EXPECTED = "expected an autoscaler; delete the file to remove its autoscalers"

_FILES_PERIOD = 2.0
"""How often, in seconds, the files are polled."""


# -- files ---------------------------------------------------------------------------------------------------


class FileContents(NamedTuple):
    """The autoscalers of all files, in the order of files and documents, and all faults."""

    autoscalers: tuple[FastPathAutoscaler, ...]
    faults: tuple[Fault, ...]


class AutoscalerFiles:
    """The .yaml, .yml and .json files of a folder. `namespace` is the default of autoscalers without one."""

    def __init__(self, folder: str, namespace: str) -> None:
        self._folder = Path(folder)
        self._namespace = namespace
        self._seen: object = None
        self._good: dict[Path, tuple[FastPathAutoscaler, ...]] = {}
        """The autoscalers of each file when it was last valid."""

    def read(self) -> FileContents:
        self._seen = self._signature()
        faults: list[Fault] = []
        files = self._files(faults)
        if files is not None:
            self._good = {path: good for path, good in self._good.items() if path in files}
            for path in files:
                try:
                    self._good[path] = tuple(self._parse(path))
                except InputError as error:
                    faults += error.faults
        return FileContents(tuple(self._distinct(faults)), tuple(faults))

    def poll(self) -> FileContents | None:
        """Read all files if one has changed since the last read, else return None."""
        return None if self._signature() == self._seen else self.read()

    def _files(self, faults: list[Fault]) -> list[Path] | None:
        """Return the files by name; None, and a fault, if the folder cannot be read."""
        try:
            entries = list(self._folder.iterdir())
        except OSError as error:
            reason = rule_source.reason_of(error)
            faults.append(Fault(_FLAG, str(self._folder), f"expected a readable folder: {reason}"))
            return None
        suffixes = rule_source.SUFFIXES
        return sorted(path for path in entries if path.suffix in suffixes and not path.name.startswith("."))

    def _signature(self) -> object:
        files = self._files([])
        return None if files is None else tuple((str(path), rule_source.stamp_of(path)) for path in files)

    def _parse(self, path: Path) -> Iterator[FastPathAutoscaler]:
        """Yield the autoscalers of a file, and raise InputError with all of its faults at the end."""
        source = str(path)
        try:
            text = text_files.read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = rule_source.reason_of(error)
            raise InputError([Fault(_FLAG, source, f"expected a readable file: {reason}")]) from error
        faults: list[Fault] = []
        count = 0
        for document in documents.read_documents(text, source):
            count += 1
            if isinstance(document, InputError):
                faults += document.faults
                continue
            for place, tree in autoscalerdocuments.documents_in(document.value):
                try:
                    yield autoscalerdocuments.read_document(tree, self._namespace)
                except InputError as error:
                    faults += (documents.located(fault, place, document, source) for fault in error.faults)
        if not count:
            faults.append(Fault("", "", _EXPECTED, source))
        if faults:
            raise InputError(faults)

    def _distinct(self, faults: list[Fault]) -> Iterator[FastPathAutoscaler]:
        """Yield each autoscaler once; a second one of the same name is a fault."""
        first: dict[tuple[str, str], Path] = {}
        for path, autoscalers in sorted(self._good.items()):
            for autoscaler in autoscalers:
                name = (autoscaler.metadata.namespace, autoscaler.metadata.name)
                if name in first:
                    expected = f"this name is already used in {first[name]}; that autoscaler is used"
                    faults.append(Fault("metadata.name", "/".join(name), expected, str(path)))
                else:
                    first[name] = path
                    yield autoscaler


# -- sources -------------------------------------------------------------------------------------------------


class AutoscalerSource(abc.ABC):
    """The autoscalers of one place, in the registry while `run` runs."""

    def __init__(self, registry: AutoscalerRegistry, problems: ProblemLog) -> None:
        self._registry = registry
        self._problems = problems

    @abc.abstractmethod
    async def run(self) -> None:
        """Follow the autoscalers until cancelled."""

    @property
    @abc.abstractmethod
    def synced(self) -> bool:
        """Whether all autoscalers are known."""

    @abc.abstractmethod
    def find(self, key: Key) -> FastPathAutoscaler | None:
        """Return an autoscaler, None if it does not exist or cannot be read."""

    @abc.abstractmethod
    def _keys(self) -> Iterable[Key]:
        """Return the keys of the autoscalers that `find` returns."""

    async def put_all(self, number: int) -> None:
        keys = [key for key in self._keys() if slices.slice_of(key.namespace) == number]
        for _ in in_steps(keys, self._put, self._problems.defects):
            await asyncio.sleep(0)

    def _put(self, key: Key) -> None:
        autoscaler = self.find(key)
        if autoscaler is not None:
            self._registry.put(autoscaler)


class AutoscalerObjectSource(AutoscalerSource):
    """FastPathAutoscalers of the cluster."""

    def __init__(
        self,
        registry: AutoscalerRegistry,
        problems: ProblemLog,
        watching: ReflectorContext,
        namespaces: Sequence[str],
    ) -> None:
        super().__init__(registry, problems)
        self._objects = AutoscalerCache(watching, self._changed, namespaces)

    async def run(self) -> None:
        await self._objects.run()

    @property
    def synced(self) -> bool:
        return self._objects.synced

    def find(self, key: Key) -> FastPathAutoscaler | None:
        watched = self._objects.find(key.namespace, key.name)
        return None if watched is None else watched.autoscaler

    def _keys(self) -> Iterable[Key]:
        return (Key(one.namespace, one.name) for one in self._objects if one.autoscaler is not None)

    def _changed(self, namespace: str, name: str) -> None:
        """Follow a change; an object that cannot be read stays as it was."""
        watched, subject = self._objects.find(namespace, name), f"{namespace}/{name}"
        if watched is not None and watched.faults:
            message = "an autoscaler cannot be read"
            self._problems.report("autoscaler", message, str(watched.faults[0]), subject=subject)
            return
        self._problems.resolve("autoscaler", subject=subject)
        if watched is None or watched.autoscaler is None:
            self._registry.remove(Key(namespace, name))
        else:
            self._registry.put(watched.autoscaler)


class AutoscalerFileSource(AutoscalerSource):
    """Autoscalers in files; `read` is their first contents. Those outside `namespaces` are left out."""

    def __init__(
        self,
        registry: AutoscalerRegistry,
        problems: ProblemLog,
        files: AutoscalerFiles,
        read: FileContents,
        namespaces: Sequence[str],
    ) -> None:
        super().__init__(registry, problems)
        self._files = files
        self._namespaces = namespaces
        self._autoscalers: dict[Key, FastPathAutoscaler] = {}
        self._left_out: set[Key] = set()
        self._adopt(read)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_FILES_PERIOD)
            read = self._files.poll()
            if read is not None:
                self._adopt(read)

    @property
    def synced(self) -> bool:
        return True  # files are read before anything runs

    def find(self, key: Key) -> FastPathAutoscaler | None:
        return self._autoscalers.get(key)

    def _keys(self) -> Iterable[Key]:
        return self._autoscalers

    def _adopt(self, read: FileContents) -> None:
        if read.faults:
            text = "; ".join(map(str, read.faults))
            self._problems.report("autoscaler-files", "a file of autoscalers cannot be used", text)
        else:
            self._problems.resolve("autoscaler-files")
        autoscalers = {Key(one.metadata.namespace, one.metadata.name): one for one in read.autoscalers}
        strange = {key for key in autoscalers if key.namespace not in self._namespaces}
        for key in strange:
            text = f"{key} is in a namespace that is not watched; restart Fastpath to watch it"
            self._problems.report("autoscaler-files", "an autoscaler is left out", text, subject=str(key))
            del autoscalers[key]
        for key in self._left_out - strange:
            self._problems.resolve("autoscaler-files", subject=str(key))
        self._left_out = strange
        for key in self._autoscalers.keys() - autoscalers.keys():
            self._registry.remove(key)
        self._autoscalers = autoscalers
        for _ in in_steps(autoscalers, self._put, self._problems.defects):
            pass
        _log.info("autoscalers in files", extra=facts(count=len(autoscalers)))


# -- boosted HPAs --------------------------------------------------------------------------------------------

_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to take over the floors."""


class BoostedHPAs:
    """The HPAs with annotations of Fastpath. `period` (ns) is the sync period of the HPA controller."""

    def __init__(
        self, registry: AutoscalerRegistry, hpas: HPACache, clock: Clock, problems: ProblemLog, period: int
    ) -> None:
        self._registry = registry
        self._hpas = hpas
        self._clock = clock
        self._problems = problems
        self._period = period
        self._published: dict[int, dict[str, Floor]] = {}
        """The floors of the previous owner that were not handed over yet, of slices that took them over."""

    async def adopt_floors(self, number: int, floors: FloorWriter) -> None:
        """Take over what the previous owner of a slice has published, then put its boosted HPAs."""
        pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        while True:
            try:
                published = dict(await floors.start())
            except NotLeadingError:
                await asyncio.sleep(next(pauses))  # the lease may be renewed yet, or the term ends
            except KubernetesError as error:
                message = "the floors of the slice's previous owner cannot be adopted"
                self._problems.report("floors", message, str(error), subject=f"slice {number}")
                await asyncio.sleep(next(pauses))
            except Exception as error:  # noqa: BLE001 - everything else is scaled without the floors
                self._problems.defects.note("unexpected error while adopting floors", error)
                await asyncio.sleep(next(pauses))
            else:
                break
        self._problems.resolve("floors", subject=f"slice {number}")
        self._published[number] = published
        asking = [
            (hpa.namespace, hpa.name)
            for hpa in self._hpas
            if (hpa.asked is not None or hpa.faults) and slices.slice_of(hpa.namespace) == number
        ]

        def follow(name: tuple[str, str]) -> None:
            self.changed(self._hpas.find(*name), *name)

        for _ in in_steps(asking, follow, self._problems.defects):
            await asyncio.sleep(0)
        self._drop_orphans(published, floors)

    def _drop_orphans(self, published: dict[str, Floor], floors: FloorWriter) -> None:
        """Remove floors that are over, and those of HPAs that no longer ask for boosting.

        A floor that was made from a newer version of its HPA than is cached stays: the cache is behind.
        """
        now = round(self._clock.wall() * SECOND)
        for uid, floor in list(published.items()):
            with self._problems.defects.contain("unexpected error about a published floor", uid):
                hpa = self._hpas.find(floor.namespace, floor.name)
                is_orphan = (
                    hpa is not None
                    and (hpa.uid != uid or (hpa.asked is None and not hpa.unreadable))
                    and not is_newer(floor.seen, hpa.resource_version)
                )
                if is_over(floor, now) or is_orphan:
                    del published[uid]
                    floors.want(uid, None)

    def end(self, number: int) -> None:
        """Note that a slice is given up: its next owner has to take over the floors again."""
        self._published.pop(number, None)
        self._problems.resolve("floors", subject=f"slice {number}")

    def changed(self, hpa: WatchedHPA | None, namespace: str, name: str) -> None:
        """Follow a change of an HPA; `hpa` is None if it is gone."""
        subject = f"{namespace}/{name}"
        if hpa is not None and hpa.faults:
            message = f"a HorizontalPodAutoscaler is {'unreadable' if hpa.unreadable else 'ignored'}"
            self._problems.report("annotation", message, "; ".join(hpa.faults), subject=subject)
        else:
            self._problems.resolve("annotation", subject=subject)
        if hpa is None or (request := hpa.asked) is None:
            self._registry.remove(Key(namespace, name, is_native=True))
            return
        boosted = request.boosted
        controller = self._registry.note(boosted.autoscaler)
        adopted = self._published.get(slices.slice_of(namespace))
        if controller is None or adopted is None:
            return
        boost = Boost(
            mode=boosted.annotations.mode,
            fault=request.fault,
            hold=boosted.annotations.hold,
            shown=request.shown,
            ambiguous=request.ambiguous,
            digest=boosted.digest,
            period=self._period,
        )
        # Only once: from now on the loop has the floor.
        published = adopted.pop(boosted.autoscaler.metadata.uid, None)
        controller.put(boosted.autoscaler, boost, published)
