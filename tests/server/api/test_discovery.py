"""How metrics become entries of discovery documents; the documents themselves are in test_documents."""

import itertools
import json
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.metrics import CustomMetricInfo, GroupResource
from adapter.server.api import discovery, encoding
from adapter.server.api.discovery import ListedMetrics, ParentResource
from adapter.server.api.paths import PREVIEW_VERSIONS

PODS, NODES = GroupResource("", "pods"), GroupResource("", "nodes")
INGRESSES = GroupResource("networking.k8s.io", "ingresses")


def info(resource: GroupResource, metric: str, *, namespaced: bool = True) -> CustomMetricInfo:
    return CustomMetricInfo(resource, namespaced, metric)


def listing(
    custom: Sequence[CustomMetricInfo], external: Sequence[str] = (), most: int = 1_000_000
) -> ListedMetrics:
    """Return what the documents list, at once."""
    steps = discovery.listing(custom, external, most)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("ListedMetrics", end.value)


def test_one_scope_for_each_parent() -> None:
    clash = [
        info(PODS, "b", namespaced=False),
        info(NODES, "x", namespaced=False),
        info(PODS, "c"),
        info(PODS, "a"),
        info(PODS, "a"),
        info(INGRESSES, "b", namespaced=False),
    ]
    assert listing(clash).custom == [
        ParentResource("ingresses.networking.k8s.io", namespaced=False, metrics=["b"]),
        ParentResource("nodes", namespaced=False, metrics=["x"]),
        ParentResource("pods", namespaced=True, metrics=["a", "c"]),
    ]


infos = st.lists(
    st.builds(
        CustomMetricInfo, st.sampled_from([PODS, NODES, INGRESSES]), st.booleans(), st.text(max_size=3)
    ),
    max_size=30,
)
names = st.lists(st.text(max_size=3), max_size=30)


@given(custom=infos, external=names, piece=st.integers(1, 500))
def test_pieces_are_one_document(custom: list[CustomMetricInfo], external: list[str], piece: int) -> None:
    """However many pieces: valid JSON, both forms list the same, and every group-version has an entry."""
    listed = listing(custom, external)
    whole = encoding.PIECE_BYTES
    encoding.PIECE_BYTES = piece
    try:
        aggregated = json.loads(b"".join(discovery.aggregated(PREVIEW_VERSIONS, listed)))
        legacy = {
            group: json.loads(b"".join(discovery.resource_list(group, "v1beta1", listed)))["resources"]
            for group in PREVIEW_VERSIONS
        }
    finally:
        encoding.PIECE_BYTES = whole
    listed_versions = [
        (entry["metadata"]["name"], each) for entry in aggregated["items"] for each in entry["versions"]
    ]
    assert [(group, each["version"]) for group, each in listed_versions] == [
        (group, version) for group, versions in PREVIEW_VERSIONS.items() for version in versions
    ]
    for group, each_version in listed_versions:
        resources = each_version["resources"]
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


@given(custom=infos, external=names, most=st.integers(0, 12))
def test_no_more_is_listed_than_there_is_room_for(
    custom: list[CustomMetricInfo], external: list[str], most: int
) -> None:
    whole, listed = listing(custom, external), listing(custom, external, most)
    assert whole.left_out == 0
    counts = {parent.name: len(parent.metrics) for parent in listed.custom}
    assert sum(counts.values()) <= most
    assert len(listed.external) == min(most, len(whole.external))
    assert listed.external == whole.external[:most]
    for parent in whole.custom:
        kept = next((each.metrics for each in listed.custom if each.name == parent.name), [])
        assert kept == parent.metrics[: len(kept)]
        assert len(kept) >= min(len(parent.metrics), most // len(whole.custom)), "each parent has its share"
    total = sum(len(parent.metrics) for parent in whole.custom)
    if total <= most:
        assert listed.custom == whole.custom
    assert listed.left_out == total - sum(counts.values()) + len(whole.external) - len(listed.external)


def test_what_one_parent_leaves_is_for_the_others() -> None:
    custom = [info(PODS, f"p{number:03}") for number in range(100)] + [
        info(INGRESSES, f"i{number}") for number in range(3)
    ]
    listed = listing(custom, most=20)
    assert {parent.name: len(parent.metrics) for parent in listed.custom} == {
        "ingresses.networking.k8s.io": 3,
        "pods": 17,
    }
    assert listed.left_out == 83


@pytest.mark.parametrize(("length", "kept"), [(1, 10), (99, 10), (100, 5), (450, 2), (5_000, 0)])
def test_long_names_count_for_several(length: int, kept: int) -> None:
    names = [
        f"{number:02}".rjust(length, "x")[-length:] if length > 1 else chr(97 + number)
        for number in range(20)
    ]
    assert len(listing([], names, most=10).external) == kept


def test_other_work_may_run_while_many_metrics_are_listed() -> None:
    custom = [info(PODS, f"metric_{number:06}") for number in range(30_000)]
    assert sum(1 for _ in discovery.listing(custom, ())) >= 30
