"""Publishing floors: the ConfigMap of one shard, written by the leader of one term.

What lives here: `FloorWriter`. Not here: what is published when (`autoscaler.decide.boost`), reading what all shards have published (`floors`).
The law: a floor counts as published once the API server has accepted a ConfigMap with it, and not before. Every write replaces the
version that it was made from, and makes another, whatever stands in it: so nothing that is still under way, a former leader's or one of
our own that had no answer, can land on what came after it.

Of the entries of this shard the leader's are right. Others that stand there are kept, as is whatever else is in the object.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from adapter import errors
from adapter.boost.floor import LABEL, FloorEntry, config_map_name, decode_entries, encode_entry
from adapter.boost.floor_maps import FORM
from adapter.boost.view import FloorView
from adapter.kubernetes import api_errors, client
from adapter.kubernetes.write.client import Writer, is_overloaded, may_have_been_applied
from adapter.kubernetes.write.rate_limiter import WriteKind
from adapter.model.shards import Shard
from adapter.telemetry.problems import ProblemLog

LIMIT = 900_000
"""The most bytes of entries; the API server takes a mebibyte."""

SHARE = LIMIT // 2
"""The most bytes of the entries of one namespace, so that a tenant with many raises leaves room for those of others."""

AGAIN = 5
"""How often a write is tried again, with what is stored by then, before those who wait for it are told."""

FETCH_SECONDS = 5.0
RETRY, RETRY_LIMIT = 0.5, 10.0
"""Seconds between attempts that nobody waits for; doubled up to the second."""

FAULT = "floor-write"

ADOPTED = "fastpath.io/written-from"
"""An annotation with the version from which the ConfigMap was written: it makes every write another version."""


class _Stored(NamedTuple):
    """What is stored: an object without its managed fields, which the server keeps by itself; no `version` where there is none."""

    version: str
    texts: Mapping[str, str]
    document: Mapping[str, Any]

    @property
    def labelled(self) -> bool:
        """Whether readers find it."""
        return (self.document["metadata"].get("labels") or {}).get(LABEL) == "true"


@dataclass(slots=True, eq=False)
class _Publication:
    """An entry that somebody waits for. `superseded`: something else was wanted while it was under way."""

    uid: str
    text: str
    accepted: asyncio.Future[None]
    superseded: bool = False


class FloorWriter:
    """Publishes the floors of a shard as the leader of one term, where `view` reads them. `run` does what is asked, after `start`."""

    def __init__(self, writer: Writer, view: FloorView, shard: Shard, faults: ProblemLog) -> None:
        self._writer = writer
        self._view = view
        self._namespace = view.namespace
        self._name = config_map_name(shard)
        self._path = f"/api/v1/namespaces/{view.namespace}/configmaps"
        self._faults = faults
        self._stored: _Stored | None = None
        self._unsure: str | None = None
        self._wanted: dict[str, str | None] = {}
        self._namespaces: dict[str, str] = {}
        self._due = False
        self._pause = 0.0
        self._started = asyncio.Event()
        self._busy = False
        self._over = False
        self._waiting: list[_Publication] = []
        self._batch: list[_Publication] = []
        self._asked = asyncio.Event()
        self._wake = asyncio.Event()

    async def start(self) -> Mapping[str, FloorEntry]:
        """Return what is published, which from now on is this term's.

        Where there is something it is written anew as it is: what a former leader has still under way comes too late then.
        `errors.KubernetesError` and `errors.NotLeadingError` where that cannot be done; to be called again then.
        """
        found: dict[str, FloorEntry] = {}

        def adopt(stored: _Stored) -> Mapping[str, str] | None:
            nonlocal found
            found = self._decode_entries(stored.texts)
            return stored.texts if stored.version else None

        stored = await self._store(adopt)
        self._wanted = {**stored.texts, **self._wanted}
        self._namespaces = {uid: entry.namespace for uid, entry in found.items()} | self._namespaces
        self._started.set()
        return found

    async def publish(self, entry: FloorEntry) -> None:
        """Return when the API server has accepted an entry.

        `errors.KubernetesError` where it has not, or may not have: whatever was published before is then restored.
        `errors.NotLeadingError` where the term is over. Who stops waiting does not know what is published, and has to say what is wanted.
        """
        if self._over:
            raise errors.NotLeadingError(_OVER)
        self._supersede(entry.uid)
        self._namespaces[entry.uid] = entry.namespace
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Publication(entry.uid, encode_entry(entry), accepted))
        self._asked.set()
        self._wake.set()
        try:
            await accepted
        finally:
            if accepted.done() and not accepted.cancelled():
                accepted.exception()  # is told, even where this task has been cancelled meanwhile

    def want(self, uid: str, entry: FloorEntry | None) -> None:
        """Have an entry published, or (None) none, without waiting for it: soon, and tried again while the term lasts."""
        self._supersede(uid)
        for each in self._batch:
            each.superseded = each.superseded or each.uid == uid
        self._wanted[uid] = None if entry is None else encode_entry(entry)
        if entry is not None:
            self._namespaces[uid] = entry.namespace
        self._due = True
        self._wake.set()

    def remove(self, uid: str) -> None:
        """Have nothing published of an autoscaler; as `want`."""
        self.want(uid, None)

    async def run(self) -> None:
        """Write what is asked for once `start` has returned, until cancelled. Then whoever waits is told that the term is over."""
        end = self._view.subscribe(self._see)
        try:
            await self._started.wait()
            self._compare()
            while True:
                await self._wait()
                await self._write()
                self._compare()
        finally:
            end()
            self._over = True
            self._fail(self._waiting, errors.NotLeadingError(_OVER))

    # -- when --------------------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Return when there is something to write: at once for those who wait, else after the pause of a failure."""
        while not self._waiting:
            if self._due and not self._pause:
                return
            event = self._asked if self._pause else self._wake
            event.clear()
            try:
                async with asyncio.timeout(self._pause or None):
                    await event.wait()
            except TimeoutError:
                return

    async def _write(self) -> None:
        """Write what is wanted and those who wait for; whatever comes of it, they are told."""
        self._busy = True
        try:
            await self._store(self._merge)
        except (errors.KubernetesError, errors.NotLeadingError) as error:
            # what was tried may be stored, or be so later
            for each in self._batch:
                self._wanted.setdefault(each.uid, None)
            self._batch += self._waiting
            self._waiting = []
            self._fail(self._batch, error)
            self._due = self._due or self._unsure is not None
            self._pause = min(2 * self._pause or RETRY, RETRY_LIMIT) if self._due else 0.0
            if not isinstance(error, errors.NotLeadingError):
                self._faults.report(
                    FAULT, "floors cannot be published; nothing is raised without", str(error)
                )
        else:
            self._settle()
            self._pause = 0.0
            self._faults.resolve(FAULT)
        finally:
            self._fail(self._batch, errors.NotLeadingError(_OVER))
            self._batch = []
            self._busy = False

    def _settle(self) -> None:
        """Note that what was to be written is stored."""
        assert self._stored is not None
        for each in self._batch:
            if not each.superseded:
                self._wanted[each.uid] = each.text
            if not each.accepted.done():
                each.accepted.set_result(None)
        texts = self._stored.texts
        for uid in [uid for uid, text in self._wanted.items() if text is None and uid not in texts]:
            del self._wanted[uid]
            if not any(each.uid == uid for each in self._waiting):
                self._namespaces.pop(uid, None)
        self._due = self._differs(texts)

    def _differs(self, texts: Mapping[str, str]) -> bool:
        return any(texts.get(uid) != text for uid, text in self._wanted.items())

    def _see(self, uid: str) -> None:
        """Look whether somebody else has changed an entry of ours."""
        if not self._busy and self._wanted.get(uid) != self._view.stored(self._name)[1].get(uid):
            self._compare()

    def _compare(self) -> None:
        """Restore our entries where somebody else has changed them since they were written."""
        version, texts = self._view.stored(self._name)
        if self._stored is not None and version != int(self._stored.version or 0) and self._differs(texts):
            self._stored = None
            self._due = True
            self._wake.set()

    # -- what --------------------------------------------------------------------------------------------------------------

    def _merge(self, stored: _Stored) -> Mapping[str, str] | None:
        """Return what has to stand in the ConfigMap by now, None where it may stay as it is."""
        self._batch = self._gather()
        texts = {**stored.texts, **{uid: text for uid, text in self._wanted.items() if text is not None}}
        for uid in [uid for uid, text in self._wanted.items() if text is None]:
            texts.pop(uid, None)
        sizes: Counter[str] = Counter()
        for uid, text in texts.items():
            sizes[self._namespaces.get(uid, "")] += _size(uid, text)
        for each in self._batch:
            namespace = self._namespaces.get(each.uid, "")
            more = _size(each.uid, each.text) - _size(each.uid, texts.get(each.uid))
            if more > 0 and (sizes.total() + more > LIMIT or sizes[namespace] + more > SHARE):
                self._wanted.setdefault(each.uid, None)
                self._fail([each], _too_large(self._name, namespace))
                continue
            sizes[namespace] += more
            texts[each.uid] = each.text
        self._batch = [each for each in self._batch if not each.accepted.done()]
        as_it_is = (texts == stored.texts and stored.labelled) if stored.version else not texts
        return None if as_it_is and not self._batch and self._unsure is None else texts

    def _gather(self) -> list[_Publication]:
        """Return those who wait for the next write: those of an attempt that came to nothing, and all that came since."""
        latest: dict[str, _Publication] = {}
        for each in self._batch + self._waiting:
            other = latest.get(each.uid)
            if other is not None:
                self._fail([other], _superseded(each.uid))
            if each.superseded:
                self._fail([each], _superseded(each.uid))
            latest[each.uid] = each
        self._waiting = []
        return [each for each in latest.values() if not each.accepted.done()]

    def _supersede(self, uid: str) -> None:
        """Tell those who wait for an entry of `uid`, and are not under way, that it will not be published."""
        self._fail([each for each in self._waiting if each.uid == uid], _superseded(uid))
        self._waiting = [each for each in self._waiting if each.uid != uid]

    @staticmethod
    def _fail(publications: Iterable[_Publication], error: Exception) -> None:
        for each in publications:
            if not each.accepted.done():
                each.accepted.set_exception(error)

    # -- the wire ----------------------------------------------------------------------------------------------------------

    async def _store(self, make: Callable[[_Stored], Mapping[str, str] | None]) -> _Stored:
        """Store what `make` makes of what is stored, nothing for None; return what is stored then.

        `make` is asked when the turn of a write has come, and again with what is stored by then where somebody else has written, the
        server has put it off, or a connection was closed under it.
        """
        left = AGAIN
        while True:
            stored = self._stored or await self._fetch()
            await self._writer.acquire(WriteKind.FLOOR)
            texts = make(stored)
            if texts is None:
                self._stored = stored
                return stored
            try:
                self._stored = await self._send(stored, texts)
            except errors.KubernetesError as error:
                self._stored = None
                if may_have_been_applied(error):
                    self._unsure = stored.version
                if not left or not _may_help(error, stored):
                    raise
            else:
                self._unsure = None
                return self._stored
            left -= 1

    async def _fetch(self) -> _Stored:
        """Return what is stored. A write that had no answer is sure to be made, or never to be, once the version is another."""
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                answer = await self._writer.client.get(f"{self._path}/{self._name}")
        except TimeoutError as error:
            message = f"cannot get the ConfigMap {self._name}: no answer within {FETCH_SECONDS:g} s"
            raise errors.KubernetesError(0, "Timeout", message) from error
        except errors.KubernetesError as error:
            if error.status != 404:
                raise
            stored = _Stored("", {}, {})
        else:
            stored = self._decode(answer)
        if self._unsure is not None and self._unsure != stored.version:
            self._unsure = None
        return stored

    async def _send(self, stored: _Stored, texts: Mapping[str, str]) -> _Stored:
        metadata = dict(stored.document.get("metadata") or {"name": self._name, "namespace": self._namespace})
        metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: "true"}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ADOPTED: stored.version}
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            **stored.document,
            "metadata": metadata,
            "data": texts,
        }
        content = msgspec.json.encode(document)
        if stored.version:
            return self._decode(
                await self._writer.send(WriteKind.FLOOR, "PUT", f"{self._path}/{self._name}", content)
            )
        return self._decode(await self._writer.send(WriteKind.FLOOR, "POST", self._path, content))

    def _decode(self, answer: client.ResponseBody) -> _Stored:
        """Return what was read or written; the view of this process takes it over at once."""
        try:
            read = FORM.decode(answer.content)
            document = msgspec.json.decode(answer.content, type=dict[str, Any])
        except ValueError as error:  # msgspec's own errors are ValueErrors, as is bad UTF-8
            message = f"cannot read the ConfigMap {self._namespace}/{self._name}: {error}"
            raise errors.KubernetesError(0, "Decode", message) from error
        self._view.take(read)
        document["metadata"].pop("managedFields", None)
        return _Stored(read.version, read.texts, document)

    def _decode_entries(self, texts: Mapping[str, str]) -> dict[str, FloorEntry]:
        try:
            return decode_entries(dict(texts))
        except ValueError as error:
            message = (
                f"the ConfigMap {self._namespace}/{self._name} holds what is no floor ({error}); "
                "delete the entry, or the ConfigMap, and all is raised from what is there then"
            )
            raise errors.KubernetesError(0, "Decode", message) from error


_OVER = "the term is over"


def _may_help(error: errors.KubernetesError, stored: _Stored) -> bool:
    """Tell whether a write may succeed if it is made of what is stored by now."""
    gone = error.status == 404 and bool(stored.version)
    return gone or error.status == 409 or is_overloaded(error) or error.reason == api_errors.RESET


def _size(uid: str, text: str | None) -> int:
    return 0 if text is None else len(uid) + len(text.encode())


def _superseded(uid: str) -> errors.KubernetesError:
    return errors.KubernetesError(
        0, "Superseded", f"the floor of {uid} was not published: another is wanted since"
    )


def _too_large(name: str, namespace: str) -> errors.KubernetesError:
    message = (
        f"the ConfigMap {name} would hold more than {LIMIT:,} bytes, or more than {SHARE:,} of the namespace "
        f"{namespace}: use more shards (--shard)"
    )
    return errors.KubernetesError(0, "TooLarge", message)
