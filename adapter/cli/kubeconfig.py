"""The options of verbs that ask a cluster as kubectl does, and the connection that they describe."""

import os
import random
from collections.abc import AsyncIterator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from adapter.config import checks
from adapter.config.option_fields import CommandOptions, option
from adapter.config.pflag import FlagType
from adapter.errors import Fault, InputError

if TYPE_CHECKING:
    from adapter.kubernetes.client import KubernetesClient
    from adapter.model.clock import Clock
    from adapter.telemetry.problems import ProblemLog

_cluster = partial(option, group="Kubernetes API server")


@dataclass(frozen=True, kw_only=True)
class KubeconfigOptions(CommandOptions):
    """The cluster, and the user there, as kubectl's flags of these names say."""

    kubeconfig: str = _cluster(
        FlagType.TEXT,
        "",
        "Kubeconfig of the cluster; without it $KUBECONFIG, then ~/.kube/config, then the pod's service "
        "account.",
        metavar="file",
        check=checks.is_given,
    )
    context: str = _cluster(
        FlagType.TEXT, "", "Context of the kubeconfig; without it the current context.", metavar="name"
    )
    impersonate: str = _cluster(
        FlagType.TEXT,
        "",
        "User to act as in the cluster, which has to allow you to impersonate.",
        name="as",
        metavar="user",
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        """Yield what is wrong with values together."""
        yield from super().faults(given)
        if "impersonate" in given and not (self.impersonate.isprintable() and self.impersonate.strip()):
            yield Fault("--as", "", "expected the name of a user")


def find_file(options: KubeconfigOptions) -> Path | None:
    """Return the file given, or the one that kubectl would take; None leaves the pod's service account."""
    if options.kubeconfig:
        return Path(options.kubeconfig)
    listed = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if len(listed) > 1:
        raise InputError([Fault("$KUBECONFIG", "", "names several files: expected one, or --kubeconfig")])
    if listed:
        return Path(listed[0])
    usual = Path("~/.kube/config").expanduser()
    return usual if usual.exists() else None


@asynccontextmanager
async def connect(
    options: KubeconfigOptions, clock: "Clock", faults: "ProblemLog", *, request_timeout: float = 30.0
) -> AsyncIterator["KubernetesClient"]:
    """Return the client of the cluster, for requests of `request_timeout` seconds each.

    InputError for a kubeconfig that cannot be used.
    """
    from adapter.kubernetes import client, credentials  # noqa: PLC0415 - kubernetes-asyncio takes most of a second

    file = find_file(options)
    if file is None and options.context:
        raise InputError(
            [Fault("--context", options.context, "expected a kubeconfig: set KUBECONFIG or --kubeconfig")]
        )
    configuration = await credentials.load_configuration(
        file, clock, faults, flag="--kubeconfig", context=options.context or None
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
