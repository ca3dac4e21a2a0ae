"""ConfigMaps in memory, and faulty connections to them, in the time of the event loop.

The store has one order of versions, as etcd has. A connection (`Line`) delays requests and responses, loses
responses, and lets writes land late.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from adapter.errors import KubernetesError
from adapter.kubernetes import client, transport
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.write.config_map import FETCH_SECONDS

_T = TypeVar("_T")
JSON = dict[str, Any]
_LONGEST = 2 * FETCH_SECONDS


class Store:
    """The ConfigMaps of one namespace."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, JSON] = {}

    def post(self, document: JSON) -> JSON:
        name = document["metadata"]["name"]
        if name in self.objects:
            raise KubernetesError(409, "AlreadyExists", f"{name} exists")
        return self._put(document)

    def put(self, document: JSON) -> JSON:
        name = document["metadata"]["name"]
        old = self.objects.get(name)
        if old is None:
            raise KubernetesError(404, "NotFound", f"{name} not found")
        if document["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise KubernetesError(409, "Conflict", "the object has been modified")
        if _plain(document) == _plain(old):
            return old
        return self._put(document)

    def edit(self, name: str, change: Callable[[JSON], None]) -> None:
        """Change an object as a user with kubectl does."""
        document = msgspec.json.decode(msgspec.json.encode(self.objects[name]))
        change(document)
        self._put(document)

    def remove(self, name: str, version: str) -> JSON:
        """Delete an object with a precondition."""
        old = self.objects.get(name)
        if old is None:
            raise KubernetesError(404, "NotFound", f"{name} not found")
        if old["metadata"]["resourceVersion"] != version:
            raise KubernetesError(409, "Conflict", "the object has been modified")
        self.delete(name)
        return old

    def delete(self, name: str) -> None:
        del self.objects[name]
        self.version += 1

    def texts(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.objects[name].get("data", {}) if name in self.objects else {}
        return found

    def _put(self, document: JSON) -> JSON:
        self.version += 1
        metadata = {**document["metadata"], "resourceVersion": str(self.version)}
        stored = self.objects[metadata["name"]] = {**document, "metadata": metadata}
        return stored


def _plain(document: JSON) -> JSON:
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return {**document, "metadata": metadata}


class Line:
    """The connection of one process to the store; has what `adapter.boost` calls of `KubernetesClient`.

    `delay` returns the seconds of one way. `cut` lets nothing through. `deaf` tells, for each write, whether
    its response is lost; `late` returns how many seconds a write takes to land. `answer` is an HTTP status
    that refuses writes, `list_answer` one that refuses lists.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.delay: Callable[[], float] = lambda: 0.0
        self.deaf: Callable[[], bool] = lambda: False
        self.late: Callable[[], float] = lambda: 0.0
        self.cut = False
        self.answer = 0
        self.list_answer = 0
        self.lists = 0
        self.gets = 0
        self.writes: list[str] = []
        self.under_way: set[asyncio.Task[JSON]] = set()

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
        self, source: ListWatch[_T], deliver: Callable[[list[_T]], None], *, resource_version: str
    ) -> str:
        assert (source.resource.plural, source.namespace, resource_version) == ("configmaps", "fastpath", "")
        self.lists += 1
        await self._way()
        if self.list_answer:
            raise KubernetesError(self.list_answer, "Refused", "refused by the test")
        found = [
            msgspec.json.encode(each)
            for each in self.store.objects.values()
            if source.selector.matches(each["metadata"].get("labels") or {})
        ]
        version = self.store.version
        await self._way()
        deliver(list(map(source.codec.decode, found)))
        return str(version)

    async def _way(self) -> None:
        await asyncio.sleep(self.delay())
        if self.cut:
            await asyncio.sleep(_LONGEST)
            raise KubernetesError(0, "Unreachable", "cut off")


def lagging(
    rng: random.Random, usual: float = 0.004, odds: float = 0.05, longest: float = 3.0
) -> Callable[[], float]:
    """Return a delay that is mostly short."""
    return lambda: rng.uniform(0, longest) if rng.random() < odds else rng.uniform(0, usual)


def _body(document: JSON) -> client.ResponseBody:
    return client.ResponseBody("application/json", msgspec.json.encode(document))
