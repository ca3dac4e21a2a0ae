"""How metrics become entries of discovery documents; the documents themselves are in test_documents."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from adapter.model.metrics import CustomMetricInfo, GroupResource
from adapter.server import bodies, discovery
from adapter.server.api import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP
from adapter.server.discovery import Listed, Parent

PODS, NODES = GroupResource("", "pods"), GroupResource("", "nodes")
INGRESSES = GroupResource("networking.k8s.io", "ingresses")


def info(resource: GroupResource, metric: str, *, namespaced: bool = True) -> CustomMetricInfo:
    return CustomMetricInfo(resource, namespaced, metric)


def test_one_scope_for_each_parent() -> None:
    clash = [
        info(PODS, "b", namespaced=False),
        info(NODES, "x", namespaced=False),
        info(PODS, "c"),
        info(PODS, "a"),
        info(PODS, "a"),
        info(INGRESSES, "b", namespaced=False),
    ]
    assert discovery.group_by_parent(clash) == [
        Parent("ingresses.networking.k8s.io", namespaced=False, metrics=["b"]),
        Parent("nodes", namespaced=False, metrics=["x"]),
        Parent("pods", namespaced=True, metrics=["a", "c"]),
    ]


infos = st.lists(
    st.builds(CustomMetricInfo, st.sampled_from([PODS, NODES, INGRESSES]), st.booleans(), st.text(max_size=3)),
    max_size=30,
)
names = st.lists(st.text(max_size=3), max_size=30)


@given(custom=infos, external=names, piece=st.integers(1, 500))
def test_pieces_are_one_document(custom: list[CustomMetricInfo], external: list[str], piece: int) -> None:
    """However many pieces: valid JSON, both forms list the same, and every group-version has an entry."""
    listed = Listed(custom, external)
    groups = (CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP)
    whole = bodies.PIECE_BYTES
    bodies.PIECE_BYTES = piece
    try:
        aggregated = json.loads(b"".join(discovery.aggregated(groups, listed)))
        legacy = {
            group: json.loads(b"".join(discovery.resource_list(group, "v1beta1", listed)))["resources"]
            for group in groups
        }
    finally:
        bodies.PIECE_BYTES = whole
    for group, entry in zip(groups, aggregated["items"], strict=True):
        resources = entry["versions"][0]["resources"]
        flat = list(
            itertools.chain.from_iterable(
                (
                    [f"{each['resource']}/{sub['subresource']}" for sub in each["subresources"]]
                    if "subresources" in each
                    else [each["resource"]]
                )
                for each in resources
            )
        )
        assert flat == [each["name"] for each in legacy[group]]
        assert flat
