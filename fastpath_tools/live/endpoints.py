"""The endpoints that an external rule is scraped from, as the cluster has them now."""

from adapter.config.scrape_keys import ScrapeConfig
from adapter.errors import KubernetesError
from adapter.kubernetes.cache import endpoint_slices, pod_codec
from adapter.kubernetes.cache.endpoint_slices import WatchedSlice
from adapter.kubernetes.cache.pod_codec import WatchedPod, WirePod
from adapter.kubernetes.cache.pods import PODS
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.model.label_selectors import EVERYTHING, LabelSelector, Operator, Requirement
from adapter.scrape import endpoints
from adapter.scrape.endpoints import FoundEndpoints
from fastpath_tools.live.facts import Unread


async def find(client: KubernetesClient, config: ScrapeConfig) -> FoundEndpoints | Unread:
    """Return the endpoints of a rule with `source`, found as the scaler finds them."""
    source, access = config.source, config.access
    assert source is not None, "a rule about pods has no endpoints"
    try:
        if not source.service:
            pods = await _list_pods(client, source.namespace, source.selector)
            return endpoints.resolve_pods(source, access, pods)
        slices: list[WatchedSlice] = []
        named = Requirement(endpoint_slices.SERVICE_NAME, Operator.EQUALS, (source.service,))
        kind = endpoint_slices.CODEC, endpoint_slices.ENDPOINT_SLICES
        selector = LabelSelector((named,))
        await client.list_objects(ListWatch(*kind, source.namespace, selector), slices.extend)
        pods = await _list_pods(client, source.namespace, EVERYTHING)
    except KubernetesError as error:
        return Unread(str(error))
    by_name, by_address = {pod.name: pod for pod in pods}, {pod.ip: pod for pod in pods}
    return endpoints.resolve_service(source, access, slices, by_name.get, by_address.get)


async def _list_pods(client: KubernetesClient, namespace: str, selector: LabelSelector) -> list[WatchedPod]:
    found: list[WirePod] = []
    await client.list_objects(ListWatch(pod_codec.POD_CODEC, PODS, namespace, selector), found.extend)
    return [
        pod_codec.build(pod, namespace, pod.metadata.labels or {}, pod_codec.share(pod.spec, b""))
        for pod in found
    ]
