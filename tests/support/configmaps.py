"""ConfigMaps in memory, and lines to them that misbehave: what a client of the API server sees of a network, in the loop's own time.

The store is one place with one order of versions, as etcd is. A line delays what goes there and what comes back, loses answers, lets
writes land late, cuts watches and lets them fall silent.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec

from adapter.boost.publisher import FETCH_SECONDS
from adapter.errors import KubernetesError
from adapter.kubernetes import client, transport
from adapter.kubernetes.codec import ObjectCodec, WatchEvent
from adapter.model.resources import APIResource
from adapter.model.selectors.label_selectors import LabelSelector

_T = TypeVar("_T")
JSON = dict[str, Any]
_LONGEST = 2 * FETCH_SECONDS


class Store:
    """The ConfigMaps of one namespace; `landed` is called after every change."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, JSON] = {}
        self.log: list[tuple[int, str, JSON]] = []
        self.changed = asyncio.Event()
        self.compacted = 0
        self.landed: Callable[[], None] = lambda: None

    def post(self, document: JSON) -> JSON:
        name = document["metadata"]["name"]
        if name in self.objects:
            raise KubernetesError(409, "AlreadyExists", f"{name} exists")
        return self._put("ADDED", document)

    def put(self, document: JSON) -> JSON:
        name = document["metadata"]["name"]
        old = self.objects.get(name)
        if old is None:
            raise KubernetesError(404, "NotFound", f"{name} not found")
        if document["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise KubernetesError(409, "Conflict", "the object has been modified")
        if _plain(document) == _plain(old):
            return old
        return self._put("MODIFIED", document)

    def edit(self, name: str, change: Callable[[JSON], None]) -> None:
        """Change an object as somebody with kubectl does."""
        document = msgspec.json.decode(msgspec.json.encode(self.objects[name]))
        change(document)
        self._put("MODIFIED", document)

    def remove(self, name: str, version: str) -> JSON:
        """Delete an object in that version, as asked for over the wire."""
        old = self.objects.get(name)
        if old is None:
            raise KubernetesError(404, "NotFound", f"{name} not found")
        if old["metadata"]["resourceVersion"] != version:
            raise KubernetesError(409, "Conflict", "the object has been modified")
        self.delete(name)
        return old

    def delete(self, name: str) -> None:
        document = self.objects.pop(name)
        self._note("DELETED", document)

    def set_back(self, objects: dict[str, JSON], version: int) -> None:
        """Put everything back to an earlier state, as from a backup."""
        self.objects, self.version = dict(objects), version
        self.log.clear()
        self.compacted = version
        self.changed.set()
        self.changed = asyncio.Event()

    def texts(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.objects[name].get("data", {}) if name in self.objects else {}
        return found

    def _put(self, kind: str, document: JSON) -> JSON:
        return self._note(kind, document)

    def _note(self, kind: str, document: JSON) -> JSON:
        self.version += 1
        stored: JSON = {
            **document,
            "metadata": {**document["metadata"], "resourceVersion": str(self.version)},
        }
        if kind != "DELETED":
            self.objects[stored["metadata"]["name"]] = stored
        self.log.append((self.version, kind, stored))
        self.changed.set()
        self.changed = asyncio.Event()
        self.landed()
        return stored


def _plain(document: JSON) -> JSON:
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return {**document, "metadata": metadata}


class Line:
    """One process' way to the store; meets what `floors` and `floorwriter` use of `KubernetesClient`.

    `delay` gives the seconds of a way, each time; `cut` lets nothing through; `deaf` gives, for each write, whether its answer is lost;
    `late` for how many seconds a write lies about before it lands; `answer` is an HTTP status to refuse writes with, `list_answer` lists.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.delay: Callable[[], float] = lambda: 0.0
        self.deaf: Callable[[], bool] = lambda: False
        self.late: Callable[[], float] = lambda: 0.0
        self.cut = False
        self.frozen = False
        self.answer = 0
        self.list_answer = 0
        self.watch_answer = 0
        self.lists = 0
        self.gets = 0
        self.writes: list[str] = []
        self.watches = 0
        self._cutting = asyncio.Event()
        self.under_way: set[asyncio.Task[JSON]] = set()

    def cut_watches(self) -> None:
        self._cutting.set()
        self._cutting = asyncio.Event()

    async def get(self, path: str) -> client.ResponseBody:
        self.gets += 1
        await self._way()
        found = self.store.objects.get(path.rpartition("/")[2])
        await self._way()
        if found is None:
            raise KubernetesError(404, "NotFound", "not found")
        return _body(found)

    async def write(
        self,
        method: str,
        path: str,
        content: bytes,
        *,
        content_type: str,
        parameters: transport.Parameters,
        seconds: float,
        check: Callable[[], object],
    ) -> client.ResponseBody:
        assert content_type == "application/json"
        assert parameters == {"fieldManager": "fastpath"}
        await self._way()
        check()
        self.writes.append(method)
        document = msgspec.json.decode(content)
        act = self.store.post if method == "POST" else self.store.put
        if method == "DELETE":
            name = path.rpartition("/")[2]

            def act(document: JSON) -> JSON:
                return self.store.remove(name, document["preconditions"]["resourceVersion"])

        else:
            assert (method == "PUT") == path.endswith("/" + document["metadata"]["name"])
        landing = asyncio.create_task(self._land(act, document))
        self.under_way.add(landing)
        landing.add_done_callback(self._landed)
        done, _ = await asyncio.wait({landing}, timeout=seconds)
        if not done or (self.deaf() and not landing.exception()):
            raise KubernetesError(0, "Timeout", "no answer")
        return _body(landing.result())

    def _landed(self, task: "asyncio.Task[JSON]") -> None:
        self.under_way.discard(task)
        if not task.cancelled():
            task.exception()

    async def _land(self, act: Callable[[JSON], JSON], document: JSON) -> JSON:
        await asyncio.sleep(self.late())
        await self._way()
        if self.answer:
            raise KubernetesError(self.answer, "Refused", "refused by the test")
        return act(document)

    async def list_objects(
        self,
        form: ObjectCodec[_T],
        resource: APIResource,
        deliver: Callable[[list[_T]], None],
        *,
        namespace: str,
        selector: LabelSelector,
        resource_version: str,
    ) -> str:
        assert (resource.plural, namespace, resource_version) == ("configmaps", "fastpath", "")
        self.lists += 1
        await self._way()
        if self.list_answer:
            raise KubernetesError(self.list_answer, "Refused", "refused by the test")
        found = [
            msgspec.json.encode(each) for each in self.store.objects.values() if _matches(selector, each)
        ]
        version = self.store.version
        await self._way()
        deliver(list(map(form.decode, found)))
        return str(version)

    @contextlib.asynccontextmanager
    async def watch_objects(
        self,
        form: ObjectCodec[_T],
        resource: APIResource,
        *,
        namespace: str,
        selector: LabelSelector,
        resource_version: str,
        duration: float,
        silence: float,
    ) -> AsyncIterator[AsyncIterator[list[WatchEvent[_T]]]]:
        assert (resource.plural, namespace) == ("configmaps", "fastpath")
        assert silence < duration
        await self._way()
        if self.watch_answer:
            raise KubernetesError(self.watch_answer, "Refused", "refused by the test")
        if int(resource_version) < self.store.compacted:
            raise KubernetesError(410, "Expired", "too old resource version")
        self.watches += 1
        yield self._events(form, selector, int(resource_version))

    async def _events(
        self, form: ObjectCodec[_T], selector: LabelSelector, version: int
    ) -> AsyncIterator[list[WatchEvent[_T]]]:
        cutting, place = self._cutting, 0
        shown = {name for name, each in self.store.objects.items() if _matches(selector, each)}
        while True:
            changed = self.store.changed
            while place < len(self.store.log):
                at, kind, document = self.store.log[place]
                place += 1
                if at <= version:
                    continue
                name = document["metadata"]["name"]
                if not _matches(selector, document) and name in shown:
                    kind = "DELETED"
                if _matches(selector, document) or name in shown:
                    shown = shown - {name} if kind == "DELETED" else shown | {name}
                    await asyncio.sleep(self.delay())
                    await self._until_heard()
                    if cutting.is_set():
                        raise KubernetesError(0, "Reset", "cut")
                    yield [WatchEvent(kind, form.decode(msgspec.json.encode(document)), str(at))]
            waits = [asyncio.create_task(each.wait()) for each in (changed, cutting)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()
            if cutting.is_set():
                raise KubernetesError(0, "Reset", "cut")
            if place > len(self.store.log):
                place = 0

    async def _until_heard(self) -> None:
        while self.frozen or self.cut:  # noqa: ASYNC110 - set by tests at any moment, in the loop's own time
            await asyncio.sleep(0.05)

    async def _way(self) -> None:
        await asyncio.sleep(self.delay())
        if self.cut:
            await asyncio.sleep(_LONGEST)
            raise KubernetesError(0, "Unreachable", "cut off")


def lagging(
    rng: random.Random, usual: float = 0.004, odds: float = 0.05, longest: float = 3.0
) -> Callable[[], float]:
    """Return a delay that is short nearly always, and now and then not."""
    return lambda: rng.uniform(0, longest) if rng.random() < odds else rng.uniform(0, usual)


def _matches(selector: LabelSelector, document: JSON) -> bool:
    return selector.matches(document["metadata"].get("labels") or {})


def _body(document: JSON) -> client.ResponseBody:
    return client.ResponseBody("application/json", msgspec.json.encode(document))
