"""Options of verbs that ask a cluster as kubectl does or name Fastpath's Service, and the connection."""

import contextlib
import os
import random
import re
from collections.abc import AsyncIterator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

from adapter.compose.clock import SystemClock
from adapter.config import checks
from adapter.config.option_fields import CommandOptions, arguments, option, text_option
from adapter.config.pflag import FlagType
from adapter.errors import Fault, InputError
from adapter.model.objects import apiservices
from adapter.model.objects.apiservices import ServiceReference

if TYPE_CHECKING:
    from adapter.kubernetes.client import KubernetesClient

_cluster_text = partial(text_option, group="Kubernetes API server")


def prometheus_url(help_: str) -> str:
    """Return the option for a Prometheus, which is asked only if it is given."""
    url: str = text_option(help_, group="Prometheus", metavar="url", check=checks.prometheus_url, secret=True)
    return url


@dataclass(frozen=True, kw_only=True)
class KubeconfigOptions(CommandOptions):
    """The cluster, and the user there, as kubectl's flags of these names say."""

    kubeconfig: str = _cluster_text(
        "Kubeconfig of the cluster; without it $KUBECONFIG, then ~/.kube/config, then the pod's service "
        "account.",
        metavar="file",
        check=checks.is_given,
    )
    context: str = _cluster_text("Context of the kubeconfig; without it the current context.", metavar="name")
    impersonate: str = _cluster_text(
        "User to act as in the cluster, which has to allow you to impersonate.", name="as", metavar="user"
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if "impersonate" in given and not (self.impersonate.isprintable() and self.impersonate.strip()):
            yield Fault("--as", "", "expected the name of a user")


def find_files(options: KubeconfigOptions) -> list[Path]:
    """Return the file given, or else those that kubectl takes; none means the pod's service account."""
    if options.kubeconfig:
        return [Path(options.kubeconfig)]
    listed = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    there = [path for path in listed or [Path("~/.kube/config").expanduser()] if path.exists()]
    return there or listed  # some may be absent, but not all


def read_context(options: KubeconfigOptions) -> str:
    """Return the name of the context that is used, "" in a pod or where no file names it."""
    from adapter.kubernetes import kubeconfig  # noqa: PLC0415 - aiohttp takes a quarter of a second

    if not options.context:
        with contextlib.suppress(*kubeconfig.UNUSABLE):  # `connect` reports what is wrong
            return kubeconfig.read_current_context(find_files(options))
    return options.context


_Options = TypeVar("_Options", bound=KubeconfigOptions)


def with_context(options: _Options) -> _Options:
    """Return options that name the context, for kubectl too: the current one of the file may change."""
    return replace(options, context=read_context(options))


NAMESPACE = "fastpath"
SERVICE = "fastpath"
SECRET = "fastpath-serving"  # noqa: S105 - the name of a Secret, not one
AUTHORITIES = "fastpath-serving-ca"
"""The name of the ConfigMap with the certificate authorities of the serving certificate."""

DEFAULT_GROUPS = "custom.metrics.k8s.io"

lease_name = partial(
    option,
    FlagType.TEXT,
    "fastpath-scaler",
    "What the names of the Leases of scalers begin with.",
    metavar="name",
    group="Lease",
)
namespace_of_leases = partial(option, FlagType.TEXT, NAMESPACE, metavar="name", group="Lease")

_service = partial(option, group="Service", metavar="name", check=checks.label)


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(CommandOptions):
    namespace: str = _service(FlagType.TEXT, NAMESPACE, "Namespace of Fastpath.")
    service: str = _service(FlagType.TEXT, SERVICE, "Name of Fastpath's Service.")

    @property
    def reference(self) -> ServiceReference:
        return ServiceReference(self.namespace, self.service)


def _known_groups(groups: tuple[str, ...]) -> str:
    is_known = bool(groups) and apiservices.VERSIONS.keys() >= set(groups)
    return "" if is_known else f"expected one or more of {', '.join(apiservices.VERSIONS)}"


GROUPS = partial(option, FlagType.LIST, group="Service", metavar="groups", check=_known_groups)
"""The option for API groups, for its default and its help."""


@dataclass(frozen=True, kw_only=True)
class GroupsOptions(ServiceOptions):
    """Where Fastpath runs, and the API groups that are meant. A subclass gives `groups` its help."""

    groups: tuple[str, ...] = ()

    def resolved(self) -> Self:
        return replace(super().resolved(), groups=tuple(dict.fromkeys(self.groups)))


PORT = 10254
"""The local port of the Pod where the scaler shows its journal, by default."""

_server = partial(option, group="Server")
_server_text = partial(text_option, group="Server")
_server_file = partial(_server, FlagType.TEXT, "", metavar="file")
_lease = partial(option, group="Lease")
_KEY = re.compile(r"[^/]+/[^/]+")


@dataclass(frozen=True, kw_only=True)
class ScalerAddressOptions(CommandOptions):
    """The address of a process that decides about autoscalers, where no Lease is to name its Pod."""

    server: str = _server_text(
        "Address of the scaler that decides about the autoscaler, such as http://127.0.0.1:10254; without "
        "it the Lease of the autoscaler's slice names its Pod.",
        metavar="url",
    )
    token_file: str = _server_file("File with a bearer token for --server.")
    ca_file: str = _server_file("Certificate authorities for the certificate of --server.")
    tls_server_name: str = _server_text(
        "Name that the certificate of --server is checked for, such as fastpath.fastpath.svc; without it the "
        "host of --server.",
        metavar="name",
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        url = urlsplit(self.server) if checks.is_url(self.server) else None  # that a path can be added to
        if self.server and (url is None or url.query or url.fragment):
            yield Fault("--server", self.server, "expected a URL such as http://127.0.0.1:10254")


@dataclass(frozen=True, kw_only=True)
class ScalerServiceOptions(ScalerAddressOptions, KubeconfigOptions):
    """An autoscaler, and the process that decides about it: its address, or the Lease that names its Pod."""

    autoscalers: tuple[str, ...] = arguments(are_autoscalers=True)
    lease_name: str = lease_name()
    port: int = _lease(
        FlagType.INT,
        str(PORT),
        "Local port of the Pod where it shows its journal.",
        check=lambda port: "" if 1 <= port <= 65535 else "expected a port from 1 to 65535",
    )

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the autoscaler."""
        namespace, _, name = self.autoscalers[0].partition("/")
        return namespace, name

    def name_faults(self) -> Iterator[Fault]:
        """Yield what is wrong with the arguments, which have to be one autoscaler."""
        written = " ".join(self.autoscalers)
        if len(self.autoscalers) != 1 or not _KEY.fullmatch(written):
            yield Fault("NAMESPACE/NAME", written, "expected namespace and name, such as shop/web")


@asynccontextmanager
async def connect(
    options: KubeconfigOptions, *, request_timeout: float = 30.0
) -> AsyncIterator["KubernetesClient"]:
    """Return the client of the cluster, for requests of `request_timeout` seconds each.

    InputError for a kubeconfig that cannot be used.
    """
    # aiohttp takes a quarter of a second
    from adapter.kubernetes import client, credentials  # noqa: PLC0415
    from adapter.telemetry.metrics import Monitoring  # noqa: PLC0415
    from adapter.telemetry.problems import ProblemLog  # noqa: PLC0415

    files = find_files(options)
    if not files and options.context:
        raise InputError(
            [Fault("--context", options.context, "expected a kubeconfig: set KUBECONFIG or --kubeconfig")]
        )
    clock = SystemClock()
    problems = ProblemLog(Monitoring(), clock)
    configuration = await credentials.load_configuration(
        files, clock, problems, flag="--kubeconfig", context=options.context or None
    )
    opened = await client.connect(
        configuration,
        random=random.random,
        timeout=request_timeout,
        flag="--kubeconfig",
        impersonate=options.impersonate,
    )
    async with opened as connected:
        yield connected
