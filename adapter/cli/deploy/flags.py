"""The command lines of `fastpath certs` and `fastpath preflight`: arguments to options.

Here: the flags, what their values must be, the help texts. Their syntax is that of `fastpath serve`. Law: defaults are what
the shipped manifests say.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import errors
from adapter.config import flags, pflag
from adapter.config.pflag import Flag, Kind
from adapter.config.yaml import reader
from adapter.model import apiservices
from adapter.model.apiservices import ServiceReference

NAMESPACE = "fastpath"
SERVICE = "fastpath"
SECRET = "fastpath-serving"  # noqa: S105 - the name of a Secret, not one
AUTHORITIES = "fastpath-serving-ca"
"""The name of the ConfigMap with the authorities of the serving certificate."""

DEFAULT_GROUPS = "custom.metrics.k8s.io"
MAX_DAYS = 3650

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_PLACE = (
    Flag(
        "namespace", Kind.TEXT, NAMESPACE, "Namespace of Fastpath's Service.", "Where it runs", metavar="name"
    ),
    Flag("service", Kind.TEXT, SERVICE, "Name of Fastpath's Service.", "Where it runs", metavar="name"),
)
_ALL_GROUPS = ", ".join(apiservices.VERSIONS)
CERTS: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        *_PLACE,
        Flag(
            "groups",
            Kind.LIST,
            DEFAULT_GROUPS,
            f"API groups that are registered: {_ALL_GROUPS}.",
            "Where it runs",
        ),
        Flag("days", Kind.INT, "365", "How long certificate and authority are good.", "Certificate"),
        Flag(
            "previous",
            Kind.TEXT,
            "",
            "File with the authorities now in force (ca.crt of the Secret in use): the caBundle then holds them too, so that "
            "it can be applied before the certificate changes.",
            "Certificate",
            metavar="file",
        ),
        Flag(
            "output",
            Kind.TEXT,
            "",
            "Folder to write into, as a kustomize component; a new one, or one without our files. Without it all goes to standard output.",
            "Certificate",
            shorthand="o",
            metavar="folder",
        ),
    )
}
"""The flags of `fastpath certs`."""

PREFLIGHT: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        *_PLACE,
        Flag(
            "groups",
            Kind.LIST,
            "",
            f"API groups that Fastpath is to serve: {_ALL_GROUPS}. Without it all are shown, and those count that are "
            f"registered to Fastpath, and {DEFAULT_GROUPS}.",
            "Where it runs",
        ),
        Flag(
            "kubeconfig",
            Kind.TEXT,
            "",
            "Kubeconfig of the cluster; without it $KUBECONFIG, then ~/.kube/config, then the pod's service account.",
            "Kubernetes API server",
            metavar="file",
        ),
    )
}
"""The flags of `fastpath preflight`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertsOptions:
    """What to make: for which Service, good for how many days. "" is not given."""

    service: ServiceReference
    groups: tuple[str, ...]
    days: int
    previous: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOptions:
    """Which Service is to have which groups, and the cluster to ask.

    Without `groups` those that are registered to the Service; without `kubeconfig` the cluster that kubectl would ask.
    """

    service: ServiceReference
    groups: tuple[str, ...]
    kubeconfig: str


def parse_certs(argv: Sequence[str]) -> CertsOptions:
    """Return what a command line (without the program's name and the verb) asks for. Raises InputError with every fault."""
    values = _read(argv, CERTS)
    service = ServiceReference(values["namespace"], values["service"])
    return CertsOptions(
        service=service,
        groups=values["groups"],
        days=values["days"],
        previous=values["previous"],
        output=values["output"],
    )


def parse_preflight(argv: Sequence[str]) -> PreflightOptions:
    """Return what a command line (without the program's name and the verb) asks for. Raises InputError with every fault."""
    values = _read(argv, PREFLIGHT)
    service = ServiceReference(values["namespace"], values["service"])
    return PreflightOptions(service=service, groups=values["groups"], kubeconfig=values["kubeconfig"])


def asks_for_help(argv: Sequence[str], table: Mapping[str, Flag]) -> bool:
    """Say whether the command line has `--help` or `-h` as a flag."""
    return pflag.scan(argv, table).help


def render_help(verb: str, about: Sequence[str], table: Mapping[str, Flag]) -> str:
    """Return the text of `fastpath VERB --help`."""
    return "\n".join([f"Usage: fastpath {verb} [flags]", "", *about, "", *flags.help_lines(table)])


def _read(argv: Sequence[str], table: Mapping[str, Flag]) -> dict[str, Any]:
    """Return the value of every flag of `table`."""
    scanned = pflag.scan(argv, table)
    faults = list(scanned.faults)
    faults += [
        errors.Fault(reader.shown_text(word), "", "expected flags only") for word in scanned.positional
    ]
    values = {name: pflag.read(flag, flag.default) for name, flag in table.items()}
    given: dict[str, Any] = {}
    for flag, text in scanned.given:
        try:
            value: Any = pflag.read(flag, text)
        except ValueError:
            expected = f"expected {pflag.expectation(flag.kind)}"
            faults.append(errors.Fault(f"--{flag.name}", reader.shown_text(text), expected))
            continue
        given[flag.name] = given.get(flag.name, ()) + value if flag.kind in pflag.REPEATABLE else value
    for name, value in given.items():
        expected = _CHECKS[name](value)
        if expected:
            shown = ",".join(value) if isinstance(value, tuple) else str(value)
            faults.append(errors.Fault(f"--{name}", reader.shown_text(shown), expected))
    if faults:
        raise errors.InputError(faults)
    found: dict[str, Any] = values | given
    return found | {"groups": tuple(dict.fromkeys(found["groups"]))}


def _label(name: Any) -> str:
    return (
        ""
        if _LABEL.fullmatch(name)
        else "expected a name of lower-case letters, digits and dashes, at most 63"
    )


def _groups(groups: Any) -> str:
    known = bool(groups) and all(group in apiservices.VERSIONS for group in groups)
    return "" if known else f"expected one or more of {', '.join(apiservices.VERSIONS)}"


def _days(days: Any) -> str:
    return "" if 1 <= days <= MAX_DAYS else f"expected 1 to {MAX_DAYS}"


def _path(path: Any) -> str:
    return "" if path else "expected a path"


_CHECKS: Mapping[str, Callable[[Any], str]] = {
    "namespace": _label,
    "service": _label,
    "groups": _groups,
    "days": _days,
    "previous": _path,
    "output": _path,
    "kubeconfig": _path,
}
"""What a value must be beyond its kind: flag → function that returns the sentence of the fault, "" when all is well."""
