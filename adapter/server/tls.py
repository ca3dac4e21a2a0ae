"""The server's certificate: given files or a self-signed pair, replaced while connections stay open.

A changed pair is used for new handshakes only when certificate and key belong together; until then the old
one stays. A new pair means a new `ssl.SSLContext`, which the handshake switches to, since a context cannot
unload a certificate. The same is true of new authorities of client certificates. A handshake refuses unknown
client certificates; which user a certificate names, and whether it still does, is judged for each request
(`auth.client_cert`).

A new pair comes with an authority of its own. The authority's key never leaves `issue` and is discarded at
once, so no second certificate can be issued; a renewal is a new authority.
"""

import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import ssl
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.errors import Fault, InputError
from adapter.model.clock import Clock
from adapter.telemetry import logs

if TYPE_CHECKING:  # the metrics behind it take a tenth of a second, and `fastpath certs` needs none
    from adapter.telemetry.problems import ProblemLog

log = logging.getLogger(__name__)

RELOAD_PERIOD = 10.0
"""Seconds between two checks of the files. Upstream takes up to a minute."""

_FAULT = "serving-certificate"
_RENEWAL = "docs/guides/deploy.md#certificates"

_VALID = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=30)
_BACKDATED = timedelta(hours=1)  # for clients whose clock is behind
_OWN_ISSUER = "fastpath-self-signed-ca"


class CertificatePair(NamedTuple):
    """The paths of a certificate chain and its private key, both PEM."""

    certificate: Path
    key: Path


class ServingCertificate:
    """The server's TLS context, which follows the files of a pair.

    `context` is given to a listener once; each handshake switches to the context of the pair in force.
    `named` are further certificates, each for the server names it is listed with (a name may begin with
    ``*.``); a client that asks for one of those names gets that pair, any other the first. With `ask_clients`
    a client may show a certificate, and the handshake fails if it does not lead to an authority given to
    `believe`. Raises InputError for a pair that cannot be used.
    """

    def __init__(
        self,
        pair: CertificatePair,
        build: Callable[[CertificatePair], ssl.SSLContext] | None = None,
        named: Sequence[tuple[Sequence[str], "ServingCertificate"]] = (),
        *,
        ask_clients: bool = False,
    ) -> None:
        self.pair = pair
        self.expiration, self.names = math.nan, tuple[str, ...]()
        """When the certificate in use expires (epoch seconds, NaN if unknown), and its DNS names."""
        self._build_bare = build or build_context
        self._ask_clients = ask_clients
        self._authorities = ""
        self._named = {name.lower(): certificate for names, certificate in named for name in names}
        self._tried = self._signature()
        try:
            self._current = self._build()
            self._read_facts()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InputError([_fault(pair, error)]) from error
        self.context = self._build()
        self.context.sni_callback = self._switch

    def reload_if_changed(self) -> bool:
        """Load a changed pair.

        Returns whether a new one is in force. A bad one is logged once and tried again.
        """
        signature = self._signature()
        if signature == self._tried:
            return False
        try:
            context = self._build()
            self._read_facts()
        except (OSError, ValueError) as error:
            if self._signature() == signature:  # else it is being replaced right now: try again
                self._tried = signature
            self._warn("the changed serving certificate cannot be used; the old one stays in use", error)
            return False
        self._tried, self._current = signature, context
        log.info("serving certificate reloaded", extra=logs.facts(certificate=self.pair.certificate))
        return True

    def believe(self, authorities: str) -> None:
        """Replace the authorities of client certificates (PEM, "" for none) for further handshakes."""
        for certificate in dict.fromkeys(self._named.values()):
            certificate.believe(authorities)
        self._authorities = authorities
        try:
            self._current = self._build()
        except (OSError, ValueError) as error:
            # The pair is being replaced: add the authorities to the context in use, and build another at the
            # next check.
            self._admit(self._current)
            self._tried = ()
            text = (
                "the serving certificate cannot be loaded with the new authorities; the old one stays in use"
            )
            self._warn(text, error)

    def _warn(self, message: str, error: Exception) -> None:
        log.warning(message, extra=logs.facts(certificate=self.pair.certificate, error=_reason(error)))

    def _read_facts(self) -> None:
        try:
            leaf = _leaf(self.pair)
            self.expiration, self.names = leaf.not_valid_after_utc.timestamp(), _names(leaf)
        except ValueError:
            # OpenSSL serves certificates that cryptography does not parse, and these are facts for metrics.
            self.expiration, self.names = math.nan, ()

    def _build(self) -> ssl.SSLContext:
        context = self._build_bare(self.pair)
        self._admit(context)
        return context

    def _admit(self, context: ssl.SSLContext) -> None:
        if not self._ask_clients:
            return
        context.verify_mode = ssl.CERT_OPTIONAL
        # As in Go, any certificate of a bundle is an anchor; OpenSSL would require the root of an
        # intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if not self._authorities:
            return
        try:
            context.load_verify_locations(cadata=self._authorities)
        except (ssl.SSLError, ValueError) as error:
            log.warning(
                "OpenSSL rejects the authorities of client certificates, so their certificates are refused",
                extra=logs.facts(certificate=self.pair.certificate, error=str(error)),
            )

    async def follow(self, problems: "ProblemLog", clock: Clock, period: float = RELOAD_PERIOD) -> None:
        """Check now and at intervals whether the files have changed or a certificate has expired.

        An unexpected error is reported and the next check tries again. The same file reaches all replicas at
        once, so ending the process would end all of them while the certificate in force is still good.
        """
        while True:
            for certificate in (self, *dict.fromkeys(self._named.values())):
                subject = str(certificate.pair.certificate)
                try:
                    certificate.reload_if_changed()
                except Exception as error:  # noqa: BLE001 - see above
                    text = f"{type(error).__name__}: {error}"
                    message = "the files of the serving certificate cannot be checked"
                    problems.report(_FAULT, message, text, subject=subject)
                else:
                    if certificate.expiration > clock.wall() or math.isnan(certificate.expiration):
                        problems.resolve(_FAULT, subject=subject)
                        continue
                    at = f"{datetime.fromtimestamp(certificate.expiration, UTC):%Y-%m-%dT%H:%M:%SZ}"
                    text = f"it expired at {at}, so the API server does not connect: renew it, {_RENEWAL}"
                    problems.report(_FAULT, "the serving certificate has expired", text, subject=subject)
            await asyncio.sleep(period)

    def _switch(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _first: ssl.SSLContext
    ) -> None:
        chosen = self
        if name and self._named:
            wanted = name.lower().rstrip(".")
            wildcard = f"*.{wanted.partition('.')[2]}"
            chosen = self._named.get(wanted) or self._named.get(wildcard) or self
        connection.context = chosen._current  # noqa: SLF001 - one of our own kind

    def _signature(self) -> tuple[tuple[int, ...] | None, ...]:
        """Return what changes when a file does; None for one that is not there."""
        signature: list[tuple[int, ...] | None] = []
        for path in self.pair:
            try:
                file = path.stat()
            except OSError:
                signature.append(None)
            else:
                signature.append((file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns))
        return tuple(signature)


def build_context(
    pair: CertificatePair, *, minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2, ciphers: str = ""
) -> ssl.SSLContext:
    """Return a server context for `pair`, HTTP/1.1 only. Raises OSError when it does not fit.

    `ciphers` is OpenSSL's list of suites below TLS 1.3, "" for its own choice.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum
    # Renegotiation could exchange the peer of an open connection, and costs the server more than the client.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if ciphers:
        context.set_ciphers(ciphers)
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(pair.certificate, pair.key, password=_no_password)
    return context


def read_names(pair: CertificatePair) -> tuple[str, ...]:
    """Return the DNS names of a certificate. Raises InputError when it cannot be read."""
    try:
        return _names(_leaf(pair))
    except (OSError, ValueError) as error:
        raise InputError([_fault(pair, error, "--tls-sni-cert-key")]) from error


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        alternate = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(alternate.value.get_values_for_type(x509.DNSName))


def ensure_self_signed(
    directory: Path, clock: Clock, *, names: Sequence[str] = (), addresses: Sequence[str] = ("127.0.0.1",)
) -> CertificatePair:
    """Return ``apiserver.crt`` and ``apiserver.key`` of `directory`, created when missing or no longer good.

    As upstream, they are for localhost plus `names` and `addresses`, last 365 days, and the certificate file
    ends with the authority that issued it. A foreign pair is used as it is and never overwritten: one that
    does not work is an InputError.
    """
    pair = CertificatePair(directory / "apiserver.crt", directory / "apiserver.key")
    wanted = {"localhost", *names, *(str(ipaddress.ip_address(address)) for address in addresses)}
    now = datetime.fromtimestamp(clock.wall(), UTC)
    try:
        is_missing = not pair.certificate.exists() and not pair.key.exists()
        if is_missing or (_is_own(pair) and not _is_good(pair, wanted, now)):
            _write_pair(pair, wanted, now)
        build_context(pair)
    except (OSError, ValueError) as error:
        raise InputError([_fault(pair, error, "--cert-dir")]) from error
    return pair


def _is_own(pair: CertificatePair) -> bool:
    """Return whether this program issued the certificate; only then may it be replaced."""
    if not pair.certificate.exists():
        return False
    names = _leaf(pair).issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(str(name.value).startswith(f"{_OWN_ISSUER}@") for name in names)


def _is_good(pair: CertificatePair, wanted: set[str], now: datetime) -> bool:
    leaf = _leaf(pair)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc - _RENEW_BEFORE:
        return False
    alternate = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    named = set(alternate.get_values_for_type(x509.DNSName))
    named |= {str(address) for address in alternate.get_values_for_type(x509.IPAddress)}
    try:
        build_context(pair)
    except OSError:
        return False
    return wanted <= named


def _leaf(pair: CertificatePair) -> x509.Certificate:
    return x509.load_pem_x509_certificates(pair.certificate.read_bytes())[0]


def _write_pair(pair: CertificatePair, wanted: set[str], now: datetime) -> None:
    """Write a new pair: the certificate with its authority, and the key for its owner only."""
    stamp = int(now.timestamp())
    issued = issue(f"localhost@{stamp}", f"{_OWN_ISSUER}@{stamp}", wanted, now=now, valid=_VALID)
    pair.certificate.parent.mkdir(parents=True, exist_ok=True)
    _write(pair.key, issued.key, 0o600)
    _write(pair.certificate, issued.certificate + issued.authority, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


def _no_password() -> str:
    raise ValueError("the private key is encrypted")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "certificate and key do not belong together"
        return f"not usable PEM files ({error.reason or error})"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _fault(pair: CertificatePair, error: Exception, flag: str = "--tls-cert-file") -> Fault:
    return Fault(flag, str(pair.certificate), f"expected a certificate and its private key: {_reason(error)}")


class IssuedCertificate(NamedTuple):
    """A certificate, its private key and its authority, all PEM."""

    certificate: bytes
    key: bytes
    authority: bytes


def issue(
    common_name: str, authority_name: str, names: Iterable[str], *, now: datetime, valid: timedelta
) -> IssuedCertificate:
    """Return a certificate for `names` (DNS names and IP addresses) and its new authority.

    Both are valid for `valid` from `now`. `common_name` is for people; clients check `names` only.
    """
    authority_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def name(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    def build(subject: str, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.CertificateBuilder:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        usages = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=ca,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name(authority_name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issuer, critical=False)
            .add_extension(usages, critical=True)
        )

    alternate = x509.SubjectAlternativeName([_alternate(name) for name in sorted(names)])
    leaf = (
        build(common_name, leaf_key, ca=False)
        .add_extension(alternate, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    authority = build(authority_name, authority_key, ca=True).sign(authority_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    key = leaf_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return IssuedCertificate(leaf.public_bytes(pem), key, authority.public_bytes(pem))


def _alternate(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
