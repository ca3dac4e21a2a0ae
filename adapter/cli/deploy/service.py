"""The Service of Fastpath, as the shipped manifests name it, and the options that name another."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from adapter.config import checks
from adapter.config.option_fields import CommandOptions, option
from adapter.config.pflag import FlagType
from adapter.model import apiservices
from adapter.model.apiservices import ServiceReference

NAMESPACE = "fastpath"
SERVICE = "fastpath"
SECRET = "fastpath-serving"  # noqa: S105 - the name of a Secret, not one
AUTHORITIES = "fastpath-serving-ca"
"""The name of the ConfigMap with the certificate authorities of the serving certificate."""

DEFAULT_GROUPS = "custom.metrics.k8s.io"

_service = partial(option, group="Service", metavar="name", check=checks.label)


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(CommandOptions):
    """Where Fastpath runs."""

    namespace: str = _service(FlagType.TEXT, NAMESPACE, "Namespace of Fastpath.")
    service: str = _service(FlagType.TEXT, SERVICE, "Name of Fastpath's Service.")

    @property
    def reference(self) -> ServiceReference:
        """The Service as APIServices name it."""
        return ServiceReference(self.namespace, self.service)


def _known_groups(groups: tuple[str, ...]) -> str:
    """Check API groups of metrics."""
    known = bool(groups) and all(group in apiservices.VERSIONS for group in groups)
    return "" if known else f"expected one or more of {', '.join(apiservices.VERSIONS)}"


GROUPS = partial(
    option,
    FlagType.LIST,
    name="groups",
    group="Service",
    metavar="groups",
    check=_known_groups,
)
"""The option for API groups, for its default and its help."""


@dataclass(frozen=True, kw_only=True)
class GroupsOptions(ServiceOptions):
    """Where Fastpath runs, and the API groups that are meant, each once."""

    groups: tuple[str, ...] = ()

    def resolved(self) -> Self:
        """Return the options with the values that follow from others."""
        return replace(super().resolved(), groups=tuple(dict.fromkeys(self.groups)))
