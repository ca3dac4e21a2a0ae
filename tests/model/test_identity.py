"""Users as access reviews name them, and the completion of their groups."""

import pytest

from adapter.model import identity
from adapter.model.identity import ANONYMOUS, User


def test_the_spec_of_a_user_leaves_out_what_is_empty() -> None:
    assert User("u").spec == {"user": "u"}
    whole = User("u", "1", ("b", "a"), identity.sort_extra({"z": ["2", "1"], "a": []}))
    assert whole.spec == {"user": "u", "uid": "1", "groups": ["b", "a"], "extra": {"a": [], "z": ["2", "1"]}}
    assert whole.key == '{"extra":{"a":[],"z":["2","1"]},"groups":["b","a"],"uid":"1","user":"u"}'


def test_the_service_accounts_of_a_namespace_are_one_tenant() -> None:
    assert User("u:v").tenant == "u:v"
    assert User("system:serviceaccount:shop:web").tenant == "system:serviceaccount:shop"
    assert User("system:serviceaccount:shop:api").tenant == "system:serviceaccount:shop"


@pytest.mark.parametrize(
    "other",
    [
        User("v", "1", ("a",), (("k", ("x",)),)),
        User("u", "2", ("a",), (("k", ("x",)),)),
        User("u", "1", ("a", "b"), (("k", ("x",)),)),
        User("u", "1", ("a,b",), (("k", ("x",)),)),
        User("u", "1", ("a",), (("k", ("x", "y")),)),
        User("u", "1", ("a",), (("k", ("x",)), ("l", ("x",)))),
        User("u", "1", ("a",)),
    ],
    ids=["name", "uid", "groups", "comma", "extra value", "extra key", "no extra"],
)
def test_different_users_have_different_keys(other: User) -> None:
    one = User("u", "1", ("a",), (("k", ("x",)),))
    assert one.key == User("u", "1", ("a",), (("k", ("x",)),)).key
    assert one.key != other.key


@pytest.mark.parametrize(
    ("groups", "completed"),
    [
        ((), ("system:authenticated",)),
        (("a", "system:masters"), ("a", "system:masters", "system:authenticated")),
        (("system:authenticated", "a"), ("system:authenticated", "a")),
        (("system:unauthenticated",), ("system:unauthenticated",)),
    ],
    ids=["none", "others", "there already", "unauthenticated"],
)
def test_groups_are_completed(groups: tuple[str, ...], completed: tuple[str, ...]) -> None:
    assert identity.complete_groups(User("u", "1", groups)) == User("u", "1", completed)


def test_anonymous_stays_what_it_is() -> None:
    assert identity.complete_groups(ANONYMOUS) is ANONYMOUS
    assert identity.complete_groups(User("system:anonymous")) == User("system:anonymous")
