"""The command line of `fastpath doctor`: arguments to DoctorOptions.

Here: doctor's own flags and what they must be. Its syntax is that of `fastpath serve`, and so are its flags for the connection to
Prometheus. Law: nothing is asked for that a person with a kubeconfig does not have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adapter import errors
from adapter.cli.deploy import flags as deployflags
from adapter.config import flag_table, flags, pflag
from adapter.config.options import Options
from adapter.config.pflag import Flag, Given, Kind, Scanned
from adapter.config.yaml import reader
from adapter.model.apiservices import ServiceReference

_CLUSTER = "The cluster"
_OUTPUT = "Output"

OWN: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        deployflags.PREFLIGHT["kubeconfig"],
        Flag(
            "namespace", Kind.TEXT, deployflags.NAMESPACE, "Namespace of Fastpath.", _CLUSTER, metavar="name"
        ),
        Flag(
            "service", Kind.TEXT, deployflags.SERVICE, "Name of Fastpath's Service.", _CLUSTER, metavar="name"
        ),
        Flag(
            "lease-name",
            Kind.TEXT,
            "fastpath-scaler",
            "Name of the Lease of Fastpath's scaler; those of its shards begin with it.",
            _CLUSTER,
            metavar="name",
        ),
        Flag(
            "horizontal-pod-autoscaler-sync-period",
            Kind.DURATION,
            "0s",
            "How often the HPA controller decides. 0s: as the Pod of kube-controller-manager says; where that cannot be seen, 15s, "
            "Kubernetes' default.",
            _CLUSTER,
        ),
        Flag(
            "json",
            Kind.BOOL,
            "false",
            "Print one JSON document, for one autoscaler an object, else a list.",
            _OUTPUT,
        ),
    )
}
"""The flags that only `fastpath doctor` has."""

TABLE: Mapping[str, Flag] = {
    **OWN,
    "config": replace(
        flag_table.TABLE["config"],
        help="Rules file, or a folder of them; can be repeated. Without it the rules are read from the ConfigMap of "
        "the server behind the metrics APIs.",
    ),
    **{name: flag for name, flag in flag_table.TABLE.items() if flag.group == flag_table.PROMETHEUS},
    "prometheus-url": replace(
        flag_table.TABLE["prometheus-url"],
        default="",
        help="Base URL of Prometheus or a compatible engine, as it is reached from here. Without it Prometheus is not "
        "asked, and the hops scrape and engine stay unknown.",
    ),
}
"""All flags of `fastpath doctor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Whom to examine and how. `namespace` and `name` are "" for all; `period` is 0 where it is to be read.

    `files` are rules files, none where the rules are read from the cluster. `asks_prometheus` says that an address was given; the
    connection is in `options`.
    """

    namespace: str
    name: str
    kubeconfig: str
    service: ServiceReference
    lease_name: str
    period: float
    json: bool
    files: tuple[str, ...]
    asks_prometheus: bool
    options: Options


def parse_doctor(argv: Sequence[str]) -> DoctorOptions:
    """Return what a command line (without the program's name and the verb) asks for. Raises InputError with every fault."""
    scanned = pflag.scan(argv, TABLE)
    faults: list[errors.Fault] = []
    namespace, name = _read_place(scanned.positional, faults)
    own = _read_own(scanned.given, faults)
    config = TABLE["config"]
    files = tuple(each.text for each in scanned.given if each.flag is config)
    given = [each for each in scanned.given if each.flag.group == flag_table.PROMETHEUS]
    options = Options()
    try:
        options, _ = flags.build_options(
            Scanned([*given, *(Given(config, text) for text in files or ("none",))], scanned.faults)
        )
    except errors.InputError as error:
        faults += error.faults
    if faults:
        raise errors.InputError(faults)
    return DoctorOptions(
        namespace=namespace,
        name=name,
        kubeconfig=own["kubeconfig"],
        service=ServiceReference(own["namespace"], own["service"]),
        lease_name=own["lease-name"],
        period=own["horizontal-pod-autoscaler-sync-period"],
        json=own["json"],
        files=files,
        asks_prometheus=any(each.flag.name == "prometheus-url" for each in given),
        options=options,
    )


def _read_place(words: Sequence[str], faults: list[errors.Fault]) -> tuple[str, str]:
    """Return namespace and name of the argument, "" for what it leaves open."""
    if not words:
        return "", ""
    namespace, slash, name = words[0].partition("/")
    if len(words) > 1 or not namespace or (slash and not name) or "/" in name:
        expected = "expected one autoscaler such as shop/web, a namespace, or nothing for all"
        faults.append(errors.Fault("NS/NAME", reader.shown_text(" ".join(words)), expected))
    return namespace, name


def _read_own(given: Sequence[Given], faults: list[errors.Fault]) -> dict[str, Any]:
    values: dict[str, Any] = {name: pflag.read(flag, flag.default) for name, flag in OWN.items()}
    for flag, text in given:
        if flag.name not in OWN:
            continue
        try:
            values[flag.name] = pflag.read(flag, text)
        except ValueError:
            expected = f"expected {pflag.expectation(flag.kind)}"
            faults.append(errors.Fault(f"--{flag.name}", reader.shown_text(text), expected))
    empty = [name for name in ("namespace", "service", "lease-name") if not values[name]]
    faults += [errors.Fault(f"--{name}", "", "expected a name") for name in empty]
    if values["horizontal-pod-autoscaler-sync-period"] < 0:
        faults.append(errors.Fault("--horizontal-pod-autoscaler-sync-period", "", "expected 0 or more"))
    return values


def asks_for_help(argv: Sequence[str]) -> bool:
    """Say whether the command line has `--help` or `-h` as a flag."""
    return pflag.scan(argv, TABLE).help


def render_help() -> str:
    """Return the text of `fastpath doctor --help`."""
    about = [
        "Usage: fastpath doctor [NAMESPACE[/NAME]] [flags]",
        "",
        "Walks the way of a HorizontalPodAutoscaler from the load to ready pods: how long each hop takes, what is wrong, and the one",
        "change that helps most. Of a FastPathAutoscaler it says what its conditions and its target show; fastpath",
        "explain has its decisions. Without a name all autoscalers are listed, one line each. It changes nothing, and",
        "says what you may not read. Exit status: 0 without a fault (a warning is not a fault), 1 for faults or when",
        "the cluster cannot be asked.",
        "",
        "A hop is unknown where its source is not given: the hops scrape and window need the rules, from the ConfigMap",
        "of the server behind the metrics APIs or from --config, and scrape and engine need --prometheus-url, with the",
        "query parameters that the server is given.",
        "",
    ]
    return "\n".join([*about, *flags.help_lines(TABLE)])
