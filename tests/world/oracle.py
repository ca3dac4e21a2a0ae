"""A second opinion on what Fastpath writes: kubernetes-asyncio's typed client, its Watch, and kubectl.

Client, sandbox and tests are of one hand: a field with a wrong name would be wrong in all of them. The typed
client has its models from Kubernetes' own OpenAPI. It drops what a model does not know, and refuses a value
that a field cannot have, so an object that comes back from its model as it was stored has no such field.
For the kinds of Fastpath the schema is that of the CustomResourceDefinition. kubectl has to show the same
objects as the typed client.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, NamedTuple

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client import ApiClient, ApiException, Configuration

from adapter.model.autoscaling import fastpath_autoscaler
from tests.world import aggregation
from tests.world.clusters import ClusterUnderTest, Document

GROUP, VERSION = fastpath_autoscaler.GROUP, "v1alpha1"


class Known(NamedTuple):
    """A kind that Fastpath writes: its API, what that lists, its model, and its name for kubectl."""

    api: str
    listing: str
    model: str
    resource: str


KINDS = (
    Known("AutoscalingV2Api", "horizontal_pod_autoscaler", "V2HorizontalPodAutoscaler", "hpa"),
    Known("AppsV1Api", "deployment", "V1Deployment", "deployments"),
    Known("CoreV1Api", "event", "CoreV1Event", "events"),
    Known("CoreV1Api", "config_map", "V1ConfigMap", "configmaps"),
    Known("CoordinationV1Api", "lease", "V1Lease", "leases"),
)


class Oracle:
    """Reads a cluster as its administrator."""

    def __init__(self, api: ApiClient, cluster: ClusterUnderTest) -> None:
        self._api = api
        self._cluster = cluster
        self.seen: dict[str, int] = {}
        """How many objects of each kind it has looked at."""

    async def read(self, namespace: str) -> list[str]:
        """Return what is wrong with the objects of a namespace and with APIServices, each with its place."""
        wrong: list[str] = []
        for known in KINDS:
            items = await self._list(known, namespace)
            wrong += [fault for item in items for fault in self.compare(known.model, item)]
        for plural, schema in (await self._schemas()).items():
            items = await self._list_custom(plural, namespace)
            wrong += [fault for item in items for fault in self.validate(item, schema)]
        listing = client.ApiregistrationV1Api(self._api).list_api_service(_preload_content=False)
        for item in (await _raw(listing))["items"]:
            wrong += self.compare("V1APIService", item)
        return wrong

    async def read_with_kubectl(self, namespace: str) -> list[str]:
        """Return which objects of a namespace kubectl shows in another way."""
        wrong: list[str] = []
        for known in KINDS:
            wrong += await self._compare_with_kubectl(
                known.resource, namespace, await self._list(known, namespace)
            )
        for plural in await self._schemas():
            items = await self._list_custom(plural, namespace)
            wrong += await self._compare_with_kubectl(f"{plural}.{GROUP}", namespace, items)
        return wrong

    async def _list(self, known: Known, namespace: str) -> list[Document]:
        read = getattr(getattr(client, known.api)(self._api), f"list_namespaced_{known.listing}")
        items: list[Document] = (await _raw(read(namespace, _preload_content=False)))["items"]
        return items

    async def _list_custom(self, plural: str, namespace: str) -> list[Document]:
        read = client.CustomObjectsApi(self._api).list_namespaced_custom_object
        items: list[Document] = (await _raw(read(GROUP, VERSION, namespace, plural, _preload_content=False)))[
            "items"
        ]
        return items

    def compare(self, model: str, stored: Document) -> list[str]:
        """Return the fields of a stored object that its model does not have, or has with another value."""
        self.seen[model] = self.seen.get(model, 0) + 1
        place = f"{model} {_name(stored)}"
        try:
            read = SimpleNamespace(data=json.dumps(stored))
            typed = self._api.deserialize(read, model)  # type: ignore[arg-type] # it reads `data` alone
        except (ValueError, ApiException) as error:
            return [f"{place}: {error}"]
        return [
            f"{place}: {fault}" for fault in differences(stored, self._api.sanitize_for_serialization(typed))
        ]

    async def _schemas(self) -> Mapping[str, Document]:
        read = client.ApiextensionsV1Api(self._api).list_custom_resource_definition
        items = (await _raw(read(_preload_content=False)))["items"]
        return {
            item["spec"]["names"]["plural"]: item["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for item in items
            if item["spec"]["group"] == GROUP
        }

    def validate(self, stored: Document, schema: Document) -> list[str]:
        """Return the fields of a custom object that its schema does not have."""
        self.seen[stored["kind"]] = self.seen.get(stored["kind"], 0) + 1
        given = {key: value for key, value in stored.items() if key not in {"apiVersion", "kind", "metadata"}}
        return [f"{stored['kind']} {_name(stored)}: {fault}" for fault in unknown_fields(given, schema)]

    async def _compare_with_kubectl(self, resource: str, namespace: str, items: list[Document]) -> list[str]:
        """Return the objects that kubectl shows otherwise; one that has changed meanwhile is left out."""
        where = ["-n", namespace] if namespace else []
        shown = json.loads(await self._cluster.kubectl("get", resource, *where, "-o", "json"))["items"]
        known = {_key(item): item for item in items}
        return [
            f"{resource} {_name(item)}: kubectl: {fault}"
            for item in shown
            for fault in differences(
                item, {key: item[key] for key in ("apiVersion", "kind")} | known.get(_key(item), item)
            )
        ]

    @contextlib.asynccontextmanager
    async def following(self, namespace: str) -> AsyncIterator[list[str]]:
        """Watch autoscalers and Leases of a namespace until the block ends; yield what is wrong so far."""
        wrong: list[str] = []
        tasks = [
            asyncio.create_task(self._follow(known, namespace, wrong))
            for known in KINDS
            if known.resource in _WATCHED
        ]
        try:
            yield wrong
            for ended in filter(asyncio.Task.done, tasks):
                await ended
                raise AssertionError("a watch has ended")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, known: Known, namespace: str, wrong: list[str]) -> None:
        read = getattr(getattr(client, known.api)(self._api), f"list_namespaced_{known.listing}")
        # not without a version: the API server would wait until its cache is as new as etcd
        listed = await _raw(read(namespace, _preload_content=False))
        version = listed["metadata"]["resourceVersion"]
        async with watch.Watch(known.model).stream(read, namespace, resource_version=version) as events:
            async for event in events:
                wrong += self.compare(known.model, event["raw_object"])


_WATCHED = frozenset({"hpa", "leases"})


@contextlib.asynccontextmanager
async def asking(cluster: ClusterUnderTest) -> AsyncIterator[Oracle]:
    """Return the oracle of a cluster, with the administrator's kubeconfig."""
    configuration = Configuration()
    await config.load_kube_config(str(cluster.admin_kubeconfig), client_configuration=configuration)
    async with ApiClient(configuration) as api:
        yield Oracle(api, cluster)


async def examine(cluster: ClusterUnderTest) -> None:
    """Fail for what is wrong in the namespaces of a test, and of the scaler that it ran."""
    async with asking(cluster) as oracle:
        wrong = [
            fault
            for name in (cluster.namespace, aggregation.NAMESPACE, "kube-system")
            for fault in await oracle.read(name)
        ]
    assert wrong == []


async def _raw(request: Any) -> Any:
    """Return the JSON of an answer, before a model has seen it; no items where the reader is refused.

    The sandbox has one user: a test that takes rights from its reader takes them from this one too.
    """
    async with await request as response:
        return {"items": []} if response.status == HTTPStatus.FORBIDDEN else json.loads(await response.read())


def _key(item: Document) -> tuple[str, str]:
    return item["metadata"].get("uid", ""), item["metadata"]["resourceVersion"]


def _name(item: Document) -> str:
    return "/".join(filter(None, (item["metadata"].get("namespace", ""), item["metadata"]["name"])))


def differences(stored: object, typed: object, path: str = "") -> Iterator[str]:
    """Yield where the object of a model is not what was stored. A null is the same as no field."""
    if isinstance(stored, dict):
        for key, value in stored.items():
            if value is not None:
                yield from differences(
                    value, typed.get(key) if isinstance(typed, dict) else None, f"{path}.{key}"
                )
    elif isinstance(stored, list) and isinstance(typed, list) and len(stored) == len(typed):
        for place, (before, after) in enumerate(zip(stored, typed, strict=True)):
            yield from differences(before, after, f"{path}[{place}]")
    elif stored != typed and not _same_time(stored, typed):
        yield f"{path.lstrip('.')}: stored is {stored!r}, and the model has {typed!r}"


def _same_time(stored: object, typed: object) -> bool:
    try:
        return datetime.fromisoformat(str(stored)) == datetime.fromisoformat(str(typed))
    except ValueError:
        return False


def unknown_fields(value: object, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the fields of a custom object that a structural schema has not: an API server drops them."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, dict):
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        for key, below in value.items():
            if key in properties:
                yield from unknown_fields(below, properties[key], f"{path}.{key}")
            elif isinstance(more, dict):
                yield from unknown_fields(below, more, f"{path}.{key}")
            else:
                yield f"{path.lstrip('.')}.{key}".lstrip(".") + ": the schema has no such field"
    elif isinstance(value, list):
        for place, below in enumerate(value):
            yield from unknown_fields(below, schema.get("items", {}), f"{path}[{place}]")
