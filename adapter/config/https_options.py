"""The options of the HTTPS server: where it listens, its TLS, and who may call it.

Names and defaults are those of the Kubernetes API server library for servers that delegate authentication and
authorization to the API server; `anonymous-auth` is kube-apiserver's.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.config import checks
from adapter.config.option_fields import CommandOptions, option
from adapter.config.pflag import FlagType, NamedPair
from adapter.config.yaml import reader
from adapter.errors import Fault

_serving = partial(option, group="Serving")
_serving_text = partial(_serving, FlagType.TEXT)
_serving_file = partial(_serving_text, "", metavar="file")
_serving_list = partial(_serving, FlagType.LIST, "")
_serving_switch = partial(_serving, FlagType.BOOL, "false")
_security = partial(option, group="Authentication and authorization")
_security_file = partial(_security, FlagType.TEXT, "", metavar="file")
_security_list = partial(_security, FlagType.LIST)
_security_switch = partial(_security, FlagType.BOOL, "false")
_ttl = partial(_security, FlagType.DURATION, "10s", check=checks.not_negative)

_ONLY = "Only with --requestheader-client-ca-file; else the ConfigMap counts."
_FALLBACK = "Without it the pod's service account, else --lister-kubeconfig."

SERVABLE_GROUPS = ("custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io")
"""The API groups that can be served."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110's token

_MIN_VERSIONS = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")

_OPENSSL_NAMES: Mapping[str, str] = {
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "",
}
"""Go's name → OpenSSL's.

"" for suites that are not chosen by name: those of TLS 1.3, and those that no longer exist.
"""


def openssl_cipher_list(names: Iterable[str]) -> str:
    """Return the cipher list for `SSLContext.set_ciphers`, "" when the names choose nothing below TLS 1.3."""
    return ":".join(dict.fromkeys(_OPENSSL_NAMES[name] for name in names if _OPENSSL_NAMES[name]))


def _open_paths(paths: tuple[str, ...]) -> str:
    if any("*" in path[:-1] for path in paths):
        return "expected a * at the end of a path only"
    return "" if all(paths) else "expected paths such as /healthz, none of them empty"


def _served_groups(groups: tuple[str, ...]) -> str:
    for group in groups:
        if group not in SERVABLE_GROUPS:
            near = difflib.get_close_matches(group, SERVABLE_GROUPS, n=1, cutoff=0.3)
            return f"expected {', '.join(SERVABLE_GROUPS)}" + (f"; did you mean {near[0]}?" if near else "")
    return ""


def _cipher_suites(names: tuple[str, ...]) -> str:
    unknown = [name for name in names if name not in _OPENSSL_NAMES]
    if not unknown:
        return ""
    near = difflib.get_close_matches(unknown[0], _OPENSSL_NAMES, n=1)
    example = "expected Go's names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    advice = f"did you mean {near[0]}?" if near else example
    return f"{reader.shown_text(unknown[0])} is not a cipher suite, {advice}"


# also beginnings of names
_header_names = checks.expect(
    "names of headers such as x-remote-user",
    lambda names: all(_HEADER_NAME.fullmatch(name.strip()) for name in names),
)
_tls_version = checks.expect(
    f"one of {', '.join(_MIN_VERSIONS)}",
    lambda version: version in {"", *_MIN_VERSIONS},  # "" stands for the default
)


@dataclass(frozen=True, kw_only=True)
class ServingOptions(CommandOptions):
    bind_address: str = _serving(
        FlagType.ADDRESS,
        "0.0.0.0",  # noqa: S104 - prometheus-adapter's default; every caller is authenticated
        "IP address to listen on; 0.0.0.0 and :: stand for all addresses of the machine.",
    )
    secure_port: int = _serving(FlagType.PORT, "443", "Port to serve HTTPS on; 0 takes any free one.")
    serve_groups: tuple[str, ...] = _serving_list(
        "API groups that are served even if no rule needs them: custom.metrics.k8s.io, "
        "external.metrics.k8s.io, metrics.k8s.io.",
        metavar="groups",
        check=_served_groups,
    )
    serve_v1_preview: bool = _serving_switch(
        "Serve custom.metrics.k8s.io/v1 and external.metrics.k8s.io/v1 too, with the kinds of v1beta2 and "
        "v1beta1. Kubernetes has not settled these versions: names and fields may change."
    )
    cert_dir: str = _serving_text(
        "apiserver.local.config/certificates",
        "Folder for the self-signed serving certificate and key, generated if none are given.",
        metavar="folder",
    )
    tls_cert_file: str = _serving_file("Serving certificate with its chain; read again when it changes.")
    tls_private_key_file: str = _serving_file("Key of the serving certificate.")
    tls_cipher_suites: tuple[str, ...] = _serving_list(
        "Cipher suites for TLS 1.2 by Go's names; those of TLS 1.3 are always on.",
        metavar="suites",
        check=_cipher_suites,
    )
    tls_min_version: str = _serving_text(
        "",
        "Lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13; without it TLS 1.2.",
        metavar="version",
        check=_tls_version,
    )
    tls_sni_cert_keys: tuple[NamedPair, ...] = _serving(
        FlagType.CERTIFICATES,
        "",
        "Additional serving certificate for the names in it, or for the names after the colon. Can be "
        "repeated.",
        name="tls-sni-cert-key",
    )
    permit_port_sharing: bool = _serving_switch("Let several processes listen on the port (SO_REUSEPORT).")
    permit_address_sharing: bool = _serving_switch(
        "Take the port while old connections linger (SO_REUSEADDR). It is always set, as by Go."
    )
    shutdown_delay: float = _serving(
        FlagType.DURATION,
        "0s",
        "Time between becoming unready and closing the listener, for load balancers to notice.",
        check=checks.not_negative,
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            missing = "--tls-private-key-file" if self.tls_cert_file else "--tls-cert-file"
            yield Fault(missing, "", "missing: certificate and key must be set together")
        suites = self.tls_cipher_suites
        if not suites or self.tls_min_version == "VersionTLS13" or _cipher_suites(suites):
            return
        if not openssl_cipher_list(suites):
            expected = (
                "expected a suite for TLS 1.2 that is still built; for TLS 1.3 alone give "
                "--tls-min-version=VersionTLS13"
            )
            yield Fault("--tls-cipher-suites", f'"{",".join(suites)}"', expected)


_headers = partial(_security_list, metavar="headers", check=_header_names)


@dataclass(frozen=True, kw_only=True)
class SecurityOptions(CommandOptions):
    """Who may call, and how callers prove who they are."""

    authentication_kubeconfig: str = _security_file(
        f"Kubeconfig for token reviews and the lookup of certificate authorities. {_FALLBACK}"
    )
    authentication_skip_lookup: bool = _security_switch(
        "Do not read the ConfigMap kube-system/extension-apiserver-authentication: only the files given "
        "are trusted."
    )
    authentication_tolerate_lookup_failure: bool = _security_switch(
        "Be ready although that ConfigMap cannot be read; until it can, only bearer tokens authenticate."
    )
    authentication_token_webhook_cache_ttl: float = _ttl(
        "How long the result of a token review is cached; 0 disables the cache."
    )
    anonymous_auth: bool = _security(
        FlagType.BOOL,
        "true",
        "Treat callers without credentials as system:anonymous, whose permissions the API server decides; "
        "else they get only the paths that need no authorization.",
    )
    client_ca_file: str = _security_file(
        "Certificate authorities of client certificates, instead of the ConfigMap's; read again when it "
        "changes."
    )
    requestheader_client_ca_file: str = _security_file(
        "Certificate authorities of front proxies, which may act for other users, instead of the "
        "ConfigMap's; read again when it changes."
    )
    requestheader_allowed_names: tuple[str, ...] = _security_list(
        "",
        f"Common names that a front proxy's certificate may have; without them any name. {_ONLY}",
        metavar="names",
    )
    requestheader_username_headers: tuple[str, ...] = _headers(
        "x-remote-user",
        f"Headers in which a front proxy names the user; the first with a value counts. {_ONLY}",
    )
    requestheader_uid_headers: tuple[str, ...] = _headers(
        "",
        f"Headers with the user's uid, such as x-remote-uid; without them no such header is trusted. {_ONLY}",
    )
    requestheader_group_headers: tuple[str, ...] = _headers(
        "x-remote-group", f"Headers with the user's groups, one for each. {_ONLY}"
    )
    requestheader_extra_headers_prefix: tuple[str, ...] = _security_list(
        "x-remote-extra-",
        f"Prefixes of headers with extra attributes of the user. {_ONLY}",
        metavar="prefixes",
        check=_header_names,
    )
    authorization_kubeconfig: str = _security_file(f"Kubeconfig for access reviews. {_FALLBACK}")
    authorization_always_allow_paths: tuple[str, ...] = _security_list(
        "/healthz,/readyz,/livez",
        "Paths that need no authorization; one that ends with * stands for all that begin with it.",
        metavar="paths",
        check=_open_paths,
    )
    authorization_webhook_cache_authorized_ttl: float = _ttl(
        "How long a permission is cached; 0 disables the cache."
    )
    authorization_webhook_cache_unauthorized_ttl: float = _ttl(
        "How long a refusal is cached; 0 disables the cache."
    )

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:
        yield from super().notices(given)
        details = [
            f"--{name.replace('_', '-')}"
            for name in SecurityOptions.__dataclass_fields__
            if name in given and name.startswith("requestheader_") and name != "requestheader_client_ca_file"
        ]
        if details and not self.requestheader_client_ca_file:
            yield (
                "without --requestheader-client-ca-file the cluster's ConfigMap replaces these flags: "
                f"{', '.join(details)}"
            )
