"""What headers say about a caller, whatever they are. Each case is in tests/server/transcripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.identity import User
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
