"""What is read of a connection's other end, and what is made of it."""

import ssl
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from adapter.model.identity import User
from adapter.server.auth.client_cert import Bundle, ClientTrust, FrontProxy, Peer, PeerJudge, read_peer
from tests.support.certificates import Identity, Signer, patched
from tests.support.clock import ShiftedClock

ROOT = Signer("root")
BETWEEN = Signer("between", parent=ROOT)
LEAF = BETWEEN.issue("leaf")
NOW = ShiftedClock().wall()


def der(shown: Identity) -> list[bytes]:
    certificates = (shown.certificate, *shown.chain)
    return [each.public_bytes(serialization.Encoding.DER) for each in certificates]


class Modern:
    """A connection as Python has it from 3.13 on."""

    def __init__(self, chain: list[bytes]) -> None:
        self._chain = chain

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self._chain[0] if self._chain else None

    def get_unverified_chain(self) -> list[bytes]:
        return self._chain


class Old:
    """A connection that does not show its intermediates, and possibly not even where to find them."""

    def __init__(self, chain: list[bytes], hidden: Any = None) -> None:
        self._first = chain[0]
        self._sslobj = hidden

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self._first


def proxy_verdict(peer: Peer, judge: PeerJudge) -> bool:
    return judge.judge(peer, ClientTrust(1, FrontProxy(Bundle(ROOT.pem))), NOW).is_proxy


def test_what_stands_between() -> None:
    assert proxy_verdict(read_peer(Modern(der(LEAF))), PeerJudge())
    assert not proxy_verdict(read_peer(Old(der(LEAF))), PeerJudge()), "closed where it cannot be read"
    assert not read_peer(Modern([])).shown


def test_what_stood_between_is_remembered_for_sessions_that_do_not_show_it() -> None:
    judge = PeerJudge()
    resumed = read_peer(Modern(der(LEAF)[:1]))
    assert not proxy_verdict(resumed, judge)
    assert proxy_verdict(read_peer(Modern(der(LEAF))), judge)
    assert proxy_verdict(resumed, judge)
    assert not PeerJudge().judge(resumed, ClientTrust(1, FrontProxy(Bundle(ROOT.pem))), NOW).is_proxy


def test_what_never_held_is_not_remembered() -> None:
    judge = PeerJudge()
    other = Signer("between", parent=Signer("root")).issue("leaf")
    assert not proxy_verdict(read_peer(Modern(der(other))), judge)
    assert len(judge._known) == 0


def test_until_when_a_verdict_holds() -> None:
    end = LEAF.certificate.not_valid_after_utc.timestamp()
    both = ClientTrust(3, FrontProxy(Bundle(ROOT.pem)), Bundle(ROOT.pem))
    leaf, *between = der(LEAF)
    verdict = PeerJudge().judge(Peer(leaf, between), both, NOW)
    assert verdict.generation == 3
    assert NOW < verdict.until <= end
    assert isinstance(verdict.user, User)
    assert PeerJudge().judge(Peer(leaf), both, NOW).until == NOW + 60, "its time may come"
    other = ClientTrust(3, FrontProxy(Bundle(Signer("other").pem)), both.clients)
    assert PeerJudge().judge(Peer(leaf, between), other, NOW).until == NOW + 60, "as front proxy"


def broken(old: bytes, new: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(patched(LEAF.certificate, old, new))


BROKEN = {
    "text": b"no certificate",
    "version": broken(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05"),
    "subject": broken(b"leaf", b"le\xff\xfe"),
    "issuer": broken(b"between", b"betw\xff\xfen"),
}


@pytest.mark.parametrize("shown", BROKEN.values(), ids=BROKEN)
def test_a_certificate_that_cannot_be_read_in_part_is_not_believed(shown: bytes) -> None:
    """It is refused when it is shown, and nothing fails later."""
    peer = read_peer(Modern([shown]))
    assert (peer.shown, peer.certificate) == (True, None)
    verdict = PeerJudge().judge(peer, ClientTrust(1, FrontProxy(Bundle(ROOT.pem)), Bundle(ROOT.pem)), NOW)
    assert (verdict.is_proxy, verdict.user, verdict.failed) == (False, None, True)


def test_with_nothing_to_believe_a_certificate_is_a_failure() -> None:
    verdict = PeerJudge().judge(Peer(der(LEAF)[0]), ClientTrust(), NOW)
    assert (verdict.is_proxy, verdict.user, verdict.failed) == (False, None, True)
