"""What was good once stays until something good replaces it."""

import contextlib
import logging

import pytest

from adapter.server.auth.client_cert import Bundle, ClientTrust, FrontProxy, HeaderNames
from adapter.server.auth.trust_store import TrustStore
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.certificates import UNUSUAL, Signer, config_map, patched
from tests.support.clock import FakeClock

PROXY, CLIENTS, NEW = Signer("front-proxy-ca"), Signer("kubernetes"), Signer("new-front-proxy-ca")


@pytest.fixture
def faults() -> ProblemLog:
    return ProblemLog(Monitoring(), FakeClock())


def test_nothing_is_believed_before_it_was_read(faults: ProblemLog) -> None:
    store = TrustStore(faults)
    assert store.current == ClientTrust()
    assert store.find_fault() == "requestheader-client-ca-file has not been read yet"
    assert store.asks_for_certificates
    assert store.needs_lookup


def test_each_change_is_a_generation_and_is_reported_once(faults: ProblemLog) -> None:
    store, told = TrustStore(faults), list[ClientTrust]()
    store.changed = told.append
    store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    assert store.find_fault() is None
    store.adopt_config_map(config_map(PROXY.pem + "\n", CLIENTS.pem, other="entry"))
    store.adopt_config_map(config_map(PROXY.pem + NEW.pem, CLIENTS.pem))
    store.adopt_config_map(config_map(PROXY.pem + NEW.pem, CLIENTS.pem, requestheader_allowed_names=[]))
    assert [trust.generation for trust in told] == [1, 2, 3]
    assert told[-1] is store.current
    assert faults.active() == {}


def test_a_change_that_could_not_be_announced_is_announced_again(faults: ProblemLog) -> None:
    store, told = TrustStore(faults), list[ClientTrust]()

    def fail(_: ClientTrust) -> None:
        raise ZeroDivisionError

    store.changed = fail
    with pytest.raises(ZeroDivisionError):
        store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    store.changed = told.append
    for _ in range(2):
        store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    assert told == [store.current]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (None, "there is no such ConfigMap"),
        ({}, "it has no requestheader-client-ca-file"),
        (config_map("x", "x"), "requestheader-client-ca-file: Unable to load PEM file"),
        (
            config_map(NEW.pem, "x", requestheader_allowed_names="{"),
            "requestheader-allowed-names: Expecting property",
        ),
    ],
    ids=["deleted", "emptied", "broken", "names broken"],
)
def test_what_is_not_good_takes_nothing_away(
    faults: ProblemLog, entries: dict[str, str] | None, said: str
) -> None:
    store = TrustStore(faults)
    store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    good = store.current
    store.adopt_config_map(entries)
    assert store.current is good
    assert store.find_fault() is None
    assert faults.active()["trust", "requestheader-client-ca-file"].startswith(said)
    store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    assert faults.active() == {}


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        (None, "no authority of client certificates is known"),
        ({}, "no authority of client certificates is known"),
        (config_map("x", CLIENTS.pem), "requestheader-client-ca-file cannot be used"),
        (config_map(PROXY.pem, "x"), "client-ca-file cannot be used"),
        (config_map(PROXY.pem), None),
        (config_map("", CLIENTS.pem), None),
    ],
    ids=["missing", "empty", "proxy broken", "clients broken", "no clients", "no aggregation layer"],
)
def test_readiness_at_the_start(
    faults: ProblemLog, entries: dict[str, str] | None, fault: str | None
) -> None:
    store = TrustStore(faults)
    store.adopt_config_map(entries)
    assert store.find_fault() == fault
    assert faults.active() != {}, "whatever is missing is said"


def test_with_tolerance_a_lack_is_no_reason_to_be_unready(faults: ProblemLog) -> None:
    assert TrustStore(faults, tolerant=True).find_fault() is None


def test_without_look_up_only_files_count(faults: ProblemLog) -> None:
    store = TrustStore(faults, lookup=False)
    assert (store.find_fault(), store.asks_for_certificates, store.needs_lookup) == (None, False, False)
    store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    assert store.current == ClientTrust()


def test_a_file_wins_over_the_config_map(faults: ProblemLog) -> None:
    headers = HeaderNames(("x-user",), ("x-uid",))
    store = TrustStore(faults, proxy_file=True, allowed_names=("name",), headers=headers)
    assert store.needs_lookup
    store.adopt_config_map(config_map(NEW.pem, CLIENTS.pem))
    assert store.find_fault() == "requestheader-client-ca-file has not been read yet"
    store.adopt_proxy_file(PROXY.pem)
    assert store.find_fault() is None
    assert store.current.front_proxy == FrontProxy(Bundle(PROXY.pem), ("name",), headers)
    assert store.current.clients == Bundle(CLIENTS.pem)
    both = TrustStore(faults, proxy_file=True, clients_file=True)
    assert not both.needs_lookup
    both.adopt_clients_file(CLIENTS.pem)
    assert both.current == ClientTrust(1, None, Bundle(CLIENTS.pem))


@pytest.mark.parametrize("name", ["adopt_proxy_file", "adopt_clients_file"])
def test_a_broken_file_is_refused_and_changes_nothing(faults: ProblemLog, name: str) -> None:
    store = TrustStore(faults, proxy_file=True, clients_file=True)
    with pytest.raises(ValueError, match="PEM"):
        getattr(store, name)("x")
    assert store.current == ClientTrust()


def test_one_authority_for_both_purposes_is_said_loudly(
    faults: ProblemLog, caplog: pytest.LogCaptureFixture
) -> None:
    store = TrustStore(faults)
    store.adopt_config_map(config_map(PROXY.pem, PROXY.pem, requestheader_allowed_names=[]))
    assert faults.active() == {("trust-ambiguous", ""): "CN=front-proxy-ca"}
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "ANY client certificate of the cluster can act as front proxy" in warning.message
    store.adopt_config_map(config_map(PROXY.pem, PROXY.pem))
    assert faults.active() == {}


@pytest.mark.parametrize("names", [[], ["front-proxy-client"]], ids=["any name", "names"])
@pytest.mark.parametrize("place", ["both", "proxy", "clients"])
def test_an_authority_with_an_unknown_key_is_said_once_and_the_others_count(
    faults: ProblemLog, caplog: pytest.LogCaptureFixture, names: list[str], place: str
) -> None:
    store = TrustStore(faults)
    proxy = PROXY.pem + (UNUSUAL if place != "clients" else "")
    clients = CLIENTS.pem + (UNUSUAL if place != "proxy" else "")
    entries = config_map(proxy, clients, requestheader_allowed_names=names)
    store.adopt_config_map(entries)
    store.adopt_config_map(entries)
    assert store.find_fault() is None
    assert not store.current.is_ambiguous, "it vouches for nothing, so it makes nothing ambiguous"
    assert store.current.front_proxy is not None
    assert store.current.front_proxy.bundle.certificates[0] == PROXY.certificate
    assert faults.active() == {("trust-unsupported", ""): "CN=unusual-ca"}
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "key of a kind that is not supported" in warning.message
    store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem, requestheader_allowed_names=names))
    assert faults.active() == {}


def test_one_authority_for_both_purposes_is_said_beside_one_with_an_unknown_key(faults: ProblemLog) -> None:
    store = TrustStore(faults)
    store.adopt_config_map(
        config_map(PROXY.pem + UNUSUAL, UNUSUAL + PROXY.pem, requestheader_allowed_names=[])
    )
    assert set(faults.active()) == {("trust-ambiguous", ""), ("trust-unsupported", "")}


@pytest.mark.parametrize("read", ["ConfigMap", "file"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05", id="version"),
        pytest.param(b"kubernetes", b"\xff\xfebernetes", id="name that is not UTF-8"),
        pytest.param(
            bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030109"), id="unknown curve"
        ),
        pytest.param(
            bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06072a8648ce3d0209"), id="unknown kind of key"
        ),
        pytest.param(b"\x03\x42\x00\x04", b"\x03\x42\x00\x09", id="point that is not on the curve"),
    ],
)
def test_no_certificate_makes_reading_fail_otherwise_than_by_a_fault(
    faults: ProblemLog, read: str, old: bytes, new: bytes
) -> None:
    """Whatever is wrong with a certificate, it is reported, and the last good authorities stay."""
    store = TrustStore(faults, clients_file=read == "file")
    odd = patched(CLIENTS.certificate, old, new)
    if read == "file":
        with contextlib.suppress(ValueError):
            store.adopt_clients_file(odd)
        return
    store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem, requestheader_allowed_names=[]))
    store.adopt_config_map(config_map(PROXY.pem, odd, requestheader_allowed_names=[]))
    assert faults.active()
    assert store.find_fault() is None
    assert store.current.front_proxy == FrontProxy(Bundle(PROXY.pem))


def test_a_change_is_logged_with_what_counts(faults: ProblemLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    TrustStore(faults).adopt_config_map(config_map(PROXY.pem, CLIENTS.pem, requestheader_allowed_names=None))
    (record,) = [
        record for record in caplog.records if record.message == "trust in client certificates changed"
    ]
    assert record.facts == {  # type: ignore[attr-defined]
        "generation": 1,
        "proxy_authorities": "CN=front-proxy-ca",
        "proxy_names": "any",
        "client_authorities": "CN=kubernetes",
    }
