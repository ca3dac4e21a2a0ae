"""What headers say about a caller: whatever their case, their number and their tricks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.identity import User
from adapter.server.auth import authentication
from adapter.server.auth.authentication import HeaderReader
from adapter.server.auth.client_cert import HeaderNames
from adapter.telemetry.metrics import Monitoring

USUAL = HeaderNames()
Lines = list[tuple[str, str]]


MONITORING = Monitoring()


def build_reader(names: HeaderNames = USUAL) -> HeaderReader:
    return HeaderReader(names, MONITORING)


def user(lines: Lines, names: HeaderNames = USUAL) -> User | None:
    reader = build_reader(names)
    return reader.user(reader.read((name.encode(), value.encode()) for name, value in lines).lines)


def authenticated(name: str, *groups: str, uid: str = "", **extra: tuple[str, ...]) -> User:
    return User(name, uid, (*groups, "system:authenticated"), tuple(sorted(extra.items())))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([("X-Remote-User", "u")], authenticated("u"), id="name"),
        pytest.param([("x-REMOTE-user", "u")], authenticated("u"), id="any case"),
        pytest.param([("X_Remote_User", "u")], None, id="underscores are another name"),
        pytest.param([("X-Remote-User", "")], None, id="empty"),
        pytest.param(
            [("X-Remote-User", "a"), ("x-remote-user", "b")], authenticated("a"), id="the first line counts"
        ),
        pytest.param(
            [("X-Remote-User", ""), ("X-Remote-User", "b")], None, id="the first line counts, though empty"
        ),
        pytest.param([("X-Remote-Group", "g")], None, id="a group without a name"),
        pytest.param(
            [("X-Remote-User", "u"), ("X-Remote-Group", "a,b")],
            authenticated("u", "a,b"),
            id="a comma splits nothing",
        ),
        pytest.param(
            [
                ("X-Remote-Group", "a"),
                ("X-Remote-User", "u"),
                ("x-remote-group", "b"),
                ("X-Remote-Group", ""),
            ],
            authenticated("u", "a", "b"),
            id="every line is a group",
        ),
        pytest.param(
            [("X-Remote-User", "u"), ("X-Remote-Uid", "1")], authenticated("u"), id="uid is not believed"
        ),
        pytest.param(
            [("X-Remote-User", "u"), ("X-Remote-Extra-Scopes", "a"), ("x-remote-extra-SCOPES", "b")],
            authenticated("u", scopes=("a", "b")),
            id="extra",
        ),
        pytest.param(
            [("X-Remote-User", "u"), ("X-Remote-Extra-Example.com%2FKey", "v")],
            User("u", "", ("system:authenticated",), (("example.com/key", ("v",)),)),
            id="extra key is decoded after it is in lower case",
        ),
        pytest.param(
            [("X-Remote-User", "u"), ("X-Remote-Extra-a%2Fb%zz", "v"), ("X-Remote-Extra-%ff", "w")],
            User("u", "", ("system:authenticated",), (("%ff", ("w",)), ("a%2fb%zz", ("v",)))),
            id="extra key that does not decode",
        ),
        pytest.param([("X-Remote-User", "größe")], authenticated("größe"), id="UTF-8"),
        pytest.param(
            [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")],
            User("system:anonymous", "", ("system:unauthenticated",)),
            id="anonymous at the front proxy",
        ),
    ],
)
def test_the_aggregators_headers(lines: Lines, expected: User | None) -> None:
    assert user(lines) == expected


CUSTOM = HeaderNames(("x-a", "x-b"), ("x-uid", "x-remote-uid"), ("x-g", "x-h"), ("x-e-", "x-f-"))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [("X-Remote-User", "u"), ("X-Remote-Group", "system:masters")],
            None,
            id="default names mean nothing",
        ),
        pytest.param([("X-B", "b"), ("X-A", "a")], authenticated("a"), id="names in the order configured"),
        pytest.param([("X-B", "b"), ("X-A", "")], authenticated("b"), id="the first that has a value"),
        pytest.param(
            [("X-A", "a"), ("X-H", "h"), ("X-G", "g"), ("X-Remote-Group", "system:masters")],
            authenticated("a", "g", "h"),
            id="groups in the order configured",
        ),
        pytest.param(
            [("X-A", "a"), ("X-Remote-Uid", "2"), ("X-Uid", "1")], authenticated("a", uid="1"), id="uid"
        ),
        pytest.param(
            [("X-A", "a"), ("X-E-K", "1"), ("X-F-K", "2"), ("X-Remote-Extra-K", "3")],
            authenticated("a", k=("1", "2")),
            id="extra prefixes",
        ),
    ],
)
def test_configured_headers(lines: Lines, expected: User | None) -> None:
    assert user(lines, CUSTOM) == expected


def test_no_headers_configured() -> None:
    assert user([("X-Remote-User", "u"), ("-", "x")], HeaderNames((), (), (), ())) is None


def test_the_same_lines_are_the_same_user_and_others_are_not() -> None:
    reader = build_reader()
    one = reader.read([(b"X-Remote-User", b"u"), (b"X-Remote-Group", b"g"), (b"Accept", b"1")]).lines
    same = reader.read([(b"x-remote-user", b"u"), (b"Accept", b"2"), (b"X-REMOTE-GROUP", b"g")]).lines
    assert reader.user(one) is reader.user(same)
    assert reader.user(
        reader.read([(b"X-Remote-User", b"u"), (b"X-Remote-Group", b"h")]).lines
    ) != reader.user(one)


def test_large_users_and_made_up_names_are_not_remembered() -> None:
    reader = build_reader()
    large = reader.read(
        [(b"X-Remote-User", b"u"), *((b"X-Remote-Group", b"g" * 100) for _ in range(200))]
    ).lines
    assert len((reader.user(large) or User("")).groups) == 201
    assert len(reader._users) == 0
    for number in range(5000):
        reader.read([(f"x-{number}".encode(), b""), (b"y" * 1000, b"")])
    assert len(reader._classed) <= 1024
    assert max(map(len, reader._classed)) < 1000


@pytest.mark.parametrize("name", [b"X-Remote-User", b"Authorization", b"Accept", b"X-Remote-Extra-A"])
@pytest.mark.parametrize("value", [b"\xff", b"a\xc3", b"\xed\xa0\x80"])
def test_what_is_no_utf8_is_refused(name: bytes, value: bytes) -> None:
    with pytest.raises(errors.BadRequestError, match="not UTF-8"):
        build_reader().read([(name, value)])


@pytest.mark.parametrize(
    "name", ["Impersonate-User", "impersonate-GROUP", "Impersonate-Extra-x", "Impersonate-Uid"]
)
def test_impersonation_is_noticed(name: str) -> None:
    assert build_reader().read([(name.encode(), b"")]).impersonates
    assert not build_reader().read([(b"X-Impersonate-User", b"u")]).impersonates


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Bearer abc", b"abc"),
        (b"bEARER abc", b"abc"),
        (b"  Bearer abc  ", b"abc"),
        (b"Bearer abc def", b"abc"),
        (b"Bearer", b""),
        (b"Bearer  abc", b""),
        (b"Basic abc", b""),
        (b"Bearerabc", b""),
        (b"", b""),
    ],
)
def test_bearer_tokens(header: bytes, token: bytes) -> None:
    assert authentication.bearer_token(header) == token


def test_of_two_authorizations_the_first_counts() -> None:
    for first in (b"Bearer a", b""):
        lines = [(b"authorization", first), (b"Authorization", b"Bearer b")]
        assert build_reader().read(lines).authorization == first


def test_authorization_is_no_line_even_where_it_is_configured_as_one() -> None:
    names = HeaderNames(("authorization",), (), (), ("author",))
    said = build_reader(names).read([(b"Authorization", b"Bearer secret")])
    assert (said.lines, said.authorization) == ((), b"Bearer secret")


NAMES = st.sampled_from(
    ["X-Remote-User", "x-remote-group", "X-Remote-Uid", "X-Remote-Extra-a", "Accept", "X-Other"]
)


@given(
    st.lists(st.tuples(NAMES, st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=5)))
)
def test_a_user_is_what_its_lines_say(lines: Lines) -> None:
    names = [value for name, value in lines if name == "X-Remote-User"]
    found = user(lines)
    if not names or not names[0]:
        assert found is None
        return
    groups = [value for name, value in lines if name == "x-remote-group" and value]
    assert found is not None
    assert found.name == names[0]
    assert found.uid == ""
    assert [group for group in found.groups if group != "system:authenticated"] == [
        group for group in groups if group != "system:authenticated"
    ]
    assert dict(found.extra) == (
        {"a": extra} if (extra := tuple(v for n, v in lines if n == "X-Remote-Extra-a")) else {}
    )
