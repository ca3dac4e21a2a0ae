"""Builds the serving certificate, the trust in client certificates, and authentication and authorization.

A part of the composition root: decisions about callers are made in `adapter.server.auth`.
"""

import functools
import ipaddress
import random
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.config.https_options import openssl_cipher_list
from adapter.config.options import Options
from adapter.errors import Fault, InputError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.credentials import ClientConfiguration
from adapter.kubernetes.reviews import ReviewClient
from adapter.kubernetes.trust_sources import ConfigMapTrustSource, FileTrustSource
from adapter.model.clock import Clock
from adapter.server import tls
from adapter.server.auth.admission import Admission
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import Authorizer
from adapter.server.auth.client_cert import ClientTrust, HeaderNames
from adapter.server.auth.trust_store import TrustStore, header_names
from adapter.server.tls import CertificatePair, ServingCertificate
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

# TLS 1.0 and 1.1 become 1.2: OpenSSL's security level refuses them anyway.
_MIN_VERSIONS = {"VersionTLS13": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class Security:
    """What decides about callers, the server's certificate, and the authorities with their sources."""

    access: Admission
    certificate: ServingCertificate
    trust: TrustStore
    sources: Sequence[ConfigMapTrustSource | FileTrustSource]

    def find_fault(self) -> str | None:
        """Return why callers cannot be authenticated yet, None if they can."""
        fault = self.trust.find_fault()
        why = "; ".join(
            source.fault
            for source in self.sources
            if isinstance(source, ConfigMapTrustSource) and source.fault
        )
        return f"{fault}: {why}" if fault and why else fault

    def tasks(self, problems: ProblemLog, clock: Clock) -> dict[str, Coroutine[Any, Any, None]]:
        """Return, by name, the tasks that keep certificate and authorities current."""
        return {
            "serving certificate": self.certificate.follow(problems, clock),
            **{f"trust {number}": source.run() for number, source in enumerate(self.sources)},
        }


async def open_security(
    options: Options, clock: Clock, monitoring: Monitoring, problems: ProblemLog, stack: AsyncExitStack
) -> Security:
    """Connect to the API servers that review callers, and build what decides; `stack` closes it all.

    Raises InputError for a kubeconfig, or for files of a certificate, that cannot be used.
    """

    async def connect(kubeconfig: str, flag: str) -> kubernetes.KubernetesClient:
        configuration = await _load_configuration(kubeconfig, flag, options, clock, problems)
        client = await kubernetes.connect(configuration, random=random.random, flag=flag)
        return await stack.enter_async_context(client)

    authentication = await connect(options.authentication_kubeconfig, "--authentication-kubeconfig")
    authorization = await connect(options.authorization_kubeconfig, "--authorization-kubeconfig")
    headers = HeaderNames(
        header_names(options.requestheader_username_headers),
        header_names(options.requestheader_uid_headers),
        header_names(options.requestheader_group_headers),
        header_names(options.requestheader_extra_headers_prefix),
    )
    trust = TrustStore(
        problems,
        lookup=not options.authentication_skip_lookup,
        proxy_file=bool(options.requestheader_client_ca_file),
        clients_file=bool(options.client_ca_file),
        allowed_names=options.requestheader_allowed_names,
        headers=headers,
        tolerant=options.authentication_tolerate_lookup_failure,
    )
    sources: list[ConfigMapTrustSource | FileTrustSource] = []
    for path, flag, adopt in (
        (options.requestheader_client_ca_file, "--requestheader-client-ca-file", trust.adopt_proxy_file),
        (options.client_ca_file, "--client-ca-file", trust.adopt_clients_file),
    ):
        if path:
            sources.append(FileTrustSource(path, flag, adopt, problems))
    if trust.needs_lookup:
        sources.append(
            ConfigMapTrustSource(
                ReflectorContext(authentication, clock, monitoring, problems, random.random),
                trust.adopt_config_map,
            )
        )
    access = Admission(
        Authenticator(
            trust,
            ReviewClient(authentication, clock, monitoring, problems).review_token,
            clock,
            monitoring,
            token_ttl=options.authentication_token_webhook_cache_ttl,
        ),
        Authorizer(
            ReviewClient(authorization, clock, monitoring, problems).review_access,
            clock,
            monitoring,
            allowed_ttl=options.authorization_webhook_cache_authorized_ttl,
            denied_ttl=options.authorization_webhook_cache_unauthorized_ttl,
            always_allow=options.authorization_always_allow_paths,
        ),
        anonymous=options.anonymous_auth,
    )
    stack.push_async_callback(access.close)
    return Security(access, _open_certificate(options, clock, trust, monitoring), trust, sources)


def _open_certificate(
    options: Options, clock: Clock, trust: TrustStore, monitoring: Monitoring
) -> ServingCertificate:
    """Return the configured certificate, or a self-signed one of `--cert-dir`.

    It carries the certificates of `--tls-sni-cert-key` for further server names. The server asks clients for
    certificates of the authorities that `trust` holds, as these change.
    """
    minimum = _MIN_VERSIONS.get(options.tls_min_version, ssl.TLSVersion.TLSv1_2)
    ciphers = openssl_cipher_list(options.tls_cipher_suites)
    build = functools.partial(tls.build_context, minimum=minimum, ciphers=ciphers)
    named = []
    for entry in options.tls_sni_cert_keys:
        pair = CertificatePair(Path(entry.certificate), Path(entry.key))
        certificate = ServingCertificate(pair, build, ask_clients=trust.asks_for_certificates)
        named.append((entry.names or tls.read_names(pair), certificate))
    if options.tls_cert_file:
        own = CertificatePair(Path(options.tls_cert_file), Path(options.tls_private_key_file))
    else:
        bound = ipaddress.ip_address(options.bind_address)
        addresses = ["127.0.0.1"] if bound.is_unspecified else ["127.0.0.1", options.bind_address]
        own = tls.ensure_self_signed(Path(options.cert_dir), clock, addresses=addresses)
    certificate = ServingCertificate(own, build, named, ask_clients=trust.asks_for_certificates)

    for served in (certificate, *(other for _, other in named)):
        expiration = monitoring.certificate_expiration.labels(file=str(served.pair.certificate))
        expiration.set_function(functools.partial(getattr, served, "expiration"))

    def changed(now: ClientTrust) -> None:
        monitoring.trust_generation.set(now.generation)
        certificate.believe(now.pem)

    trust.changed = changed
    changed(trust.current)
    return certificate


async def _load_configuration(
    kubeconfig: str, flag: str, options: Options, clock: Clock, problems: ProblemLog
) -> ClientConfiguration:
    """Return how to reach the API server for reviews.

    In this order: the kubeconfig of the flag, the pod's service account, the kubeconfig of the lister.
    """
    if kubeconfig:
        return await credentials.load_configuration([Path(kubeconfig)], clock, problems, flag=flag)
    try:
        return await credentials.load_configuration([], clock, problems, flag=flag)
    except InputError as error:
        if not options.lister_kubeconfig:
            expected = (
                "expected a kubeconfig file, here or with --lister-kubeconfig, or to run in a pod of the "
                "cluster: an API server authenticates and authorizes callers"
            )
            raise InputError([Fault(flag, "", expected)]) from error
    return await credentials.load_configuration([Path(options.lister_kubeconfig)], clock, problems)
