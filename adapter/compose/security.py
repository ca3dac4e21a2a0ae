"""The composition of the gate: what the server shows and whom it believes, who reviews callers, and where all that is read.

A part of the composition root, by itself because it is one idea: nothing here decides anything about a caller.
"""

import functools
import ipaddress
import random
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from kubernetes_asyncio.client import Configuration

from adapter.config.ciphers import openssl_cipher_list
from adapter.config.options import Options
from adapter.errors import Fault, InputError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.config_map import ConfigMapTrustSource, FileTrustSource
from adapter.kubernetes.reviews import ReviewClient
from adapter.model.clock import Clock
from adapter.server.auth.admission import Admission
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import Authorizer
from adapter.server.auth.trust import ClientTrust, HeaderNames, header_names
from adapter.server.auth.trust_store import ProxySettings, TrustStore
from adapter.server.tls import serving_certificate
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

# OpenSSL's security level refuses TLS 1.0 and 1.1 anyway; asking for them gets 1.2.
_MIN_VERSIONS = {"VersionTLS13": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class Gate:
    """Who decides about callers, what they believe, and where that is read."""

    access: Admission
    trust: TrustStore
    sources: Sequence[ConfigMapTrustSource | FileTrustSource]

    def find_fault(self) -> str | None:
        """Return why callers cannot be judged yet, None when they can."""
        fault = self.trust.find_fault()
        why = "; ".join(
            source.error
            for source in self.sources
            if isinstance(source, ConfigMapTrustSource) and source.error
        )
        return f"{fault}: {why}" if fault and why else fault


async def open_gate(
    options: Options, clock: Clock, monitoring: Monitoring, faults: ProblemLog, stack: AsyncExitStack
) -> Gate:
    """Connect to the API servers that review callers, and build what decides about callers; `stack` closes it all."""

    async def connect(kubeconfig: str, flag: str) -> kubernetes.KubernetesClient:
        configuration = await _load_configuration(kubeconfig, flag, options, clock, faults)
        client = await kubernetes.connect(configuration, random=random.random, flag=flag)
        return await stack.enter_async_context(client)

    authentication = await connect(options.authentication_kubeconfig, "--authentication-kubeconfig")
    authorization = await connect(options.authorization_kubeconfig, "--authorization-kubeconfig")
    headers = HeaderNames(
        *map(
            header_names,
            (
                options.requestheader_username_headers,
                options.requestheader_uid_headers,
                options.requestheader_group_headers,
                options.requestheader_extra_headers_prefix,
            ),
        )
    )
    trust = TrustStore(
        faults,
        lookup=not options.authentication_skip_lookup,
        proxy_file=bool(options.requestheader_client_ca_file),
        clients_file=bool(options.client_ca_file),
        proxy=ProxySettings(options.requestheader_allowed_names, headers),
        tolerant=options.authentication_tolerate_lookup_failure,
    )
    sources: list[ConfigMapTrustSource | FileTrustSource] = []
    for path, flag, adopt in (
        (options.requestheader_client_ca_file, "--requestheader-client-ca-file", trust.adopt_proxy_file),
        (options.client_ca_file, "--client-ca-file", trust.adopt_clients_file),
    ):
        if path:
            sources.append(FileTrustSource(path, flag, adopt, faults))
    if trust.needs_lookup:
        sources.append(
            ConfigMapTrustSource(authentication, trust.adopt_config_map, faults, random=random.random)
        )
    access = Admission(
        Authenticator(
            trust,
            ReviewClient(authentication, clock, monitoring, faults),
            clock,
            monitoring,
            token_ttl=options.authentication_token_webhook_cache_ttl,
        ),
        Authorizer(
            ReviewClient(authorization, clock, monitoring, faults),
            clock,
            monitoring,
            allowed_ttl=options.authorization_webhook_cache_authorized_ttl,
            denied_ttl=options.authorization_webhook_cache_unauthorized_ttl,
            always_allow=options.authorization_always_allow_paths,
        ),
        anonymous=options.anonymous_auth,
    )
    stack.push_async_callback(access.close)
    return Gate(access, trust, sources)


def open_certificate(
    options: Options, clock: Clock, trust: TrustStore, monitoring: Monitoring
) -> serving_certificate.ServingCertificate:
    """Return the pair given, or the self-signed one of `--cert-dir`, and beside it those for further server names.

    From then on it asks clients for certificates of whatever authorities `trust` comes to hold.
    """
    minimum = _MIN_VERSIONS.get(options.tls_min_version, ssl.TLSVersion.TLSv1_2)
    ciphers = openssl_cipher_list(options.tls_cipher_suites)
    build = functools.partial(serving_certificate.build_context, minimum=minimum, ciphers=ciphers)
    named = []
    for each in options.tls_sni_cert_keys:
        pair = serving_certificate.CertificatePair(Path(each.certificate), Path(each.key))
        certificate = serving_certificate.ServingCertificate(
            pair, build, ask_clients=trust.asks_for_certificates
        )
        named.append((each.names or serving_certificate.names_of(pair), certificate))
    if options.tls_cert_file:
        own = serving_certificate.CertificatePair(
            Path(options.tls_cert_file), Path(options.tls_private_key_file)
        )
    else:
        bound = ipaddress.ip_address(options.bind_address)
        addresses = ["127.0.0.1"] if bound.is_unspecified else ["127.0.0.1", options.bind_address]
        own = serving_certificate.ensure_self_signed(Path(options.cert_dir), clock, addresses=addresses)
    certificate = serving_certificate.ServingCertificate(
        own, build, named, ask_clients=trust.asks_for_certificates
    )

    def changed(now: ClientTrust) -> None:
        monitoring.trust_generation.set(now.generation)
        certificate.believe(now.pem)

    trust.changed = changed
    changed(trust.current)
    return certificate


async def _load_configuration(
    kubeconfig: str, flag: str, options: Options, clock: Clock, faults: ProblemLog
) -> Configuration:
    """Return how to reach the API server for reviews: by the flag's file, the pod's service account, or the lister's file."""
    if kubeconfig:
        return await credentials.load_configuration(Path(kubeconfig), clock, faults, flag=flag)
    try:
        return await credentials.load_configuration(None, clock, faults, flag=flag)
    except InputError as error:
        if not options.lister_kubeconfig:
            raise InputError([_nobody_to_ask(flag)]) from error
    return await credentials.load_configuration(Path(options.lister_kubeconfig), clock, faults)


def _nobody_to_ask(flag: str) -> Fault:
    expected = (
        "expected a kubeconfig file, here or with --lister-kubeconfig, or to run in a pod of the cluster: "
        "an API server has to say who callers are and what they may do"
    )
    return Fault(flag, "", expected)
