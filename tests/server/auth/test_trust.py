"""Which certificates a bundle vouches for, and what the ConfigMap's entries mean."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from adapter.errors import UntrustedError
from adapter.server.auth import client_cert, trust_store
from adapter.server.auth.client_cert import Bundle, ClientTrust, FrontProxy, HeaderNames
from tests.support import certificates
from tests.support.certificates import ANY_USE, CLIENT_AUTH, DAY, SERVER_AUTH, UNUSUAL, Identity, Signer
from tests.support.clock import ShiftedClock

NOW = ShiftedClock().wall()
PAST, FUTURE = (-2 * DAY, -DAY), (DAY, 2 * DAY)

ROOT = Signer("kubernetes")
OTHER = Signer("other")
NAMESAKE = Signer("kubernetes")
"""The same subject name as ROOT, another key."""

INTERMEDIATE = Signer("intermediate", parent=ROOT)


def verify(bundle: Bundle, shown: Identity, *, at: float = NOW, with_chain: bool = True) -> list[str]:
    """Return the names in the chain."""
    chain = bundle.verify(shown.certificate, shown.chain if with_chain else (), at)
    return [client_cert.common_name(each) for each in chain]


@pytest.mark.parametrize(
    ("shown", "chain"),
    [
        (ROOT.issue("front-proxy-client"), ["front-proxy-client", "kubernetes"]),
        (ROOT.issue("u", uses=()), ["u", "kubernetes"]),
        (ROOT.issue("u", uses=(SERVER_AUTH, CLIENT_AUTH)), ["u", "kubernetes"]),
        (ROOT.issue("u", uses=(ANY_USE,)), ["u", "kubernetes"]),
        (INTERMEDIATE.issue("u"), ["u", "intermediate", "kubernetes"]),
    ],
    ids=["kubeadm's", "any use", "both uses", "every use", "intermediate"],
)
def test_good_certificates(shown: Identity, chain: list[str]) -> None:
    assert verify(Bundle(ROOT.pem), shown) == chain


def test_an_authority_with_an_unknown_key_vouches_for_nothing_and_takes_nothing_away() -> None:
    good = ROOT.issue("u")
    assert verify(Bundle(UNUSUAL + ROOT.pem), good) == ["u", "kubernetes"]
    issued = Signer("unusual-ca").issue("u")
    with pytest.raises(UntrustedError, match="validation failed"):
        verify(Bundle(UNUSUAL + ROOT.pem), issued)


BAD = {
    "expired": ROOT.issue("u", lifetime=PAST),
    "not yet valid": ROOT.issue("u", lifetime=FUTURE),
    "for servers only": ROOT.issue("u", uses=(SERVER_AUTH,)),
    "unknown critical extension": ROOT.issue("u", critical=True),
    "another authority": OTHER.issue("u"),
    "authority of the same name": NAMESAKE.issue("u"),
    "authority of the same name and key identifier": Signer("kubernetes", identified_as=ROOT).issue("u"),
    "authority of the same name, shown along": Identity(
        NAMESAKE.issue("u").certificate, NAMESAKE.key, [NAMESAKE.certificate]
    ),
    "self-signed": Identity(NAMESAKE.certificate, NAMESAKE.key),
    "expired intermediate": Signer("i", parent=ROOT, lifetime=PAST).issue("u"),
    "intermediate for servers only": Signer("i", parent=ROOT, uses=(SERVER_AUTH,)).issue("u"),
    "intermediate that is no authority": Signer("i", parent=ROOT, is_authority=False).issue("u"),
    "intermediate that does not say so": Signer("i", parent=ROOT, is_authority=None).issue("u"),
    "intermediate that may not sign": Signer("i", parent=ROOT, may_sign=False).issue("u"),
    "intermediate of another authority": Signer("i", parent=OTHER).issue("u"),
}


@pytest.mark.parametrize("shown", BAD.values(), ids=BAD)
def test_certificates_without_a_trusted_issuer(shown: Identity) -> None:
    with pytest.raises(UntrustedError):
        verify(Bundle(ROOT.pem), shown)


def test_an_intermediate_that_is_not_shown() -> None:
    with pytest.raises(UntrustedError):
        verify(Bundle(ROOT.pem), INTERMEDIATE.issue("u"), with_chain=False)


def test_an_intermediate_that_is_an_authority_itself() -> None:
    assert verify(Bundle(INTERMEDIATE.pem), INTERMEDIATE.issue("u"), with_chain=False) == [
        "u",
        "intermediate",
    ]


@pytest.mark.parametrize("order", [(ROOT, NAMESAKE), (NAMESAKE, ROOT)], ids=["before", "behind"])
def test_a_bundle_during_rotation(order: tuple[Signer, Signer]) -> None:
    bundle = Bundle("old and new\n" + certificates.pem(*(each.certificate for each in order)))
    assert verify(bundle, ROOT.issue("u")) == verify(bundle, NAMESAKE.issue("u")) == ["u", "kubernetes"]
    with pytest.raises(UntrustedError):
        verify(bundle, OTHER.issue("u"))


def test_an_authority_has_its_time_too() -> None:
    bundle = Bundle(Signer("kubernetes", key=ROOT.key, lifetime=PAST).pem)
    with pytest.raises(UntrustedError):
        verify(bundle, ROOT.issue("u"))


def test_time_is_an_argument() -> None:
    now = ShiftedClock().wall()  # not when the tests began
    shown = ROOT.issue("u", lifetime=(timedelta(), timedelta(hours=1)))
    bundle = Bundle(ROOT.pem)
    assert verify(bundle, shown, at=now + 1800)
    with pytest.raises(UntrustedError):
        verify(bundle, shown, at=now + 7200)


@pytest.mark.parametrize(
    "text",
    ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
    ids=["empty", "text", "broken"],
)
def test_what_is_no_bundle(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Bundle(text)


def test_bundles_are_equal_by_their_certificates() -> None:
    assert Bundle(f"# a comment\n{ROOT.pem}") == Bundle(ROOT.pem)
    assert len({Bundle(ROOT.pem), Bundle(f"{ROOT.pem}\n")}) == 1
    assert Bundle(ROOT.pem) != Bundle(OTHER.pem)


# --- the ConfigMap


def test_kubeadms_config_map() -> None:
    entries = certificates.config_map(ROOT.pem, OTHER.pem)
    assert trust_store.read_front_proxy(entries) == FrontProxy(
        Bundle(ROOT.pem), ("front-proxy-client",), HeaderNames()
    )
    assert trust_store.read_clients(entries) == Bundle(OTHER.pem)


def test_every_entry_of_the_config_map() -> None:
    entries = certificates.config_map(
        ROOT.pem,
        requestheader_allowed_names=["a", "b,c"],
        requestheader_username_headers=["X-User", " X-Name "],
        requestheader_uid_headers=["X-Uid"],
        requestheader_group_headers=[],
        requestheader_extra_headers_prefix=["X-E-"],
    )
    headers = HeaderNames(("x-user", "x-name"), ("x-uid",), (), ("x-e-",))
    assert trust_store.read_front_proxy(entries) == FrontProxy(Bundle(ROOT.pem), ("a", "b,c"), headers)
    assert trust_store.read_clients(entries) is None


@pytest.mark.parametrize("empty", ["", "[]", "null", None])
def test_absent_names_are_no_names(empty: str | None) -> None:
    entries = certificates.config_map(
        ROOT.pem, requestheader_allowed_names=empty, requestheader_username_headers=empty
    )
    found = trust_store.read_front_proxy(entries)
    assert found is not None
    assert (found.allowed_names, found.headers.username, found.headers.uid) == ((), (), ())


def test_no_aggregation_layer() -> None:
    assert trust_store.read_front_proxy(certificates.config_map("", ROOT.pem)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"requestheader_client_ca_file": "x"}, "requestheader-client-ca-file: "),
        ({"requestheader_allowed_names": "front-proxy-client"}, "requestheader-allowed-names: "),
        (
            {"requestheader_allowed_names": '"front-proxy-client"'},
            "requestheader-allowed-names: expected a JSON array",
        ),
        (
            {"requestheader_allowed_names": [1]},
            "requestheader-allowed-names: expected a JSON array of strings",
        ),
        ({"requestheader_allowed_names": "[" * 100_000}, "requestheader-allowed-names: "),
        ({"requestheader_username_headers": ["two words"]}, "invalid header name 'two words'"),
        ({"requestheader_extra_headers_prefix": [""]}, "invalid header name ''"),
    ],
    ids=["bundle", "no JSON", "no array", "no strings", "deep", "header", "empty prefix"],
)
def test_a_broken_entry_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trust_store.read_front_proxy(certificates.config_map(ROOT.pem, **change))


def test_a_broken_bundle_for_clients_is_named() -> None:
    with pytest.raises(ValueError, match=r"^client-ca-file: "):
        trust_store.read_clients({"client-ca-file": "x"})


@pytest.mark.parametrize(
    ("clients", "names", "ambiguous"),
    [
        (lambda: Bundle(ROOT.pem), (), True),
        (lambda: Bundle(Signer("kubernetes", key=ROOT.key, lifetime=(-DAY, 9 * DAY)).pem), (), True),
        (lambda: Bundle(OTHER.pem + ROOT.pem), (), True),
        (lambda: Bundle(ROOT.pem), ("front-proxy-client",), False),
        (lambda: Bundle(NAMESAKE.pem), (), False),
        (lambda: None, (), False),
    ],
    ids=["the same", "renewed", "overlap", "names are required", "same name, other key", "no clients"],
)
def test_one_authority_for_both_purposes(
    clients: Callable[[], Bundle | None], names: tuple[str, ...], *, ambiguous: bool
) -> None:
    assert ClientTrust(1, FrontProxy(Bundle(ROOT.pem), names), clients()).is_ambiguous is ambiguous
