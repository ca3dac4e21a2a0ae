"""The REST mapper: names, groups, precedence."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from adapter.model.metrics import GroupResource
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from tests.support.answers import answers


def resource(plural: str, group: str = "", version: str = "v1", *, preferred: bool = True) -> APIResource:
    singular = plural.removesuffix("s")
    return APIResource(
        group, version, plural, singular, singular.title(), True, frozenset({"list"}), preferred
    )


@pytest.mark.parametrize(("text", "group", "expected"), answers("model/resources", "lookup"))
def test_lookup_in_builtin(text: str, group: str | None, expected: str | None) -> None:
    found = BUILTIN.lookup(text, group)
    assert (str(found.group_resource) if found else None) == expected


@pytest.mark.parametrize(("listed", "group", "expected"), answers("model/resources", "precedence"))
def test_precedence(listed: list[list[Any]], group: str | None, expected: str) -> None:
    """A resource is its plural and its group, and its version and whether that is preferred."""
    resources = [resource(*each[:3], preferred=each[3:] != [False]) for each in listed]
    plural = resources[-1].plural
    found = Catalogue(resources).lookup(plural, group)
    assert found is not None
    assert found.api_version == expected


def test_subresources_are_left_out() -> None:
    catalogue = Catalogue([resource("pods"), resource("pods/status")])
    assert [entry.plural for entry in catalogue] == ["pods"]
    assert catalogue.lookup("pods/status") is None


def test_a_resource_without_singular_name_is_found_by_its_plural_only() -> None:
    catalogue = Catalogue([structs.replace(resource("pods"), singular="")])
    assert catalogue.lookup("") is None
    assert catalogue.lookup("pods") is not None


def test_find_is_exact() -> None:
    assert BUILTIN.find(GroupResource("apps", "deployments")) == BUILTIN.lookup("deployment")
    assert BUILTIN.find(GroupResource("apps", "deployment")) is None
    assert BUILTIN.find(GroupResource("", "deployments")) is None


def test_find_gives_the_version_of_precedence() -> None:
    catalogue = Catalogue(
        [resource("jobs", "a.io", "v1beta1", preferred=False), resource("jobs", "a.io", "v1")]
    )
    found = catalogue.find(GroupResource("a.io", "jobs"))
    assert found is not None
    assert found.version == "v1"


def test_singular() -> None:
    assert BUILTIN.singular(GroupResource("networking.k8s.io", "ingresses")) == "ingress"
    with pytest.raises(KeyError):
        BUILTIN.singular(GroupResource("", "ingresses"))


def test_singular_is_that_of_the_first_group_with_the_plural() -> None:
    core, metrics = (
        resource("pods"),
        structs.replace(resource("pods", "metrics.k8s.io", "v1beta1"), singular="podmetrics"),
    )
    catalogue = Catalogue([core, metrics])
    assert catalogue.singular(metrics.group_resource) == "pod"
    assert Catalogue([metrics]).singular(metrics.group_resource) == "podmetrics"


def test_lookup_knows_every_name() -> None:
    names = BUILTIN.names()
    assert names == sorted(set(names))
    assert {"pod", "pods", "ingress", "ingresses"} <= set(names)
    assert all(BUILTIN.lookup(name) for name in names)


def test_a_catalogue_is_a_value() -> None:
    one, same, other = (
        Catalogue([resource("pods")]),
        Catalogue([resource("pods")]),
        Catalogue([resource("jobs")]),
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "pods"
    assert len(one) == 1


def test_api_version_of_core_has_no_group() -> None:
    pods = BUILTIN.lookup("pods")
    assert pods is not None
    assert pods.api_version == "v1"


RESOURCES = st.lists(
    st.builds(
        resource,
        st.sampled_from(["jobs", "queues", "pods"]),
        st.sampled_from(["", "a.io", "a.io.b", "b.io"]),
        st.sampled_from(["v1", "v1beta1"]),
        preferred=st.booleans(),
    ),
    max_size=12,
)


@given(
    RESOURCES,
    st.sampled_from(["job", "Queues", "pods", "other"]),
    st.sampled_from([None, "a", "a.io", "b.io"]),
)
def test_lookup_is_the_first_match_in_order_of_precedence(
    resources: list[APIResource], text: str, group: str | None
) -> None:
    catalogue = Catalogue(resources)
    matching = [entry for entry in catalogue if text.lower() in {entry.plural, entry.singular}]
    expected = matching
    if group:
        tests: list[Callable[[str], bool]] = [group.__eq__, lambda name: name.startswith(group)]
        expected = [entry for test in tests for entry in matching if test(entry.group)]
    assert catalogue.lookup(text, group) == (expected[0] if expected else None)


@given(RESOURCES)
def test_a_groups_resources_stay_together_and_preferred_come_first(resources: list[APIResource]) -> None:
    rest = [entry for entry in Catalogue(resources) if entry.api_version != "v1"]
    seen = list(dict.fromkeys(entry.group for entry in resources if entry.api_version != "v1"))
    listed = list(dict.fromkeys(entry.group for entry in rest))
    in_discovery = [group for group in dict.fromkeys(entry.group for entry in resources) if group in seen]
    assert listed == in_discovery
    for group in listed:
        flags = [entry.preferred for entry in rest if entry.group == group]
        assert flags == sorted(flags, reverse=True)
