"""The command line of `fastpath check`: arguments to CheckOptions.

Here: check's own flags and how they go together. Its syntax is that of `fastpath serve`, and so are its connection flags: whoever has
a command line that serves can have it checked. Flags about serving are read and mean nothing here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import errors
from adapter.config import flag_table, flags, pflag
from adapter.config.options import Options
from adapter.config.pflag import Flag, Given, Kind, Scanned
from adapter.config.yaml import reader

STDIN = "-"
"""Stands for standard input among the files."""

FORMATS = ("text", "json")

_GROUP = "Checking"
OWN: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "why",
            Kind.TEXT,
            "",
            "Explain step by step why this metric is served or is not. Needs --prometheus-url.",
            _GROUP,
            metavar="metric",
        ),
        Flag(
            "object",
            Kind.TEXT,
            "",
            "With --why: the object whose value is wanted, as KIND/NAMESPACE/NAME, or KIND/NAME for a kind without namespaces; "
            "NAME may be * for all objects (needs --lister-kubeconfig). For an external metric the namespace of the autoscaler.",
            _GROUP,
            metavar="object",
        ),
        Flag(
            "selector",
            Kind.TEXT,
            "",
            "With --object: the label selector, of the objects with *, of the metric for an external metric.",
            _GROUP,
            metavar="selector",
        ),
        Flag(
            "metric-selector",
            Kind.TEXT,
            "",
            "With --object: the metric selector of a custom metric.",
            _GROUP,
            metavar="selector",
        ),
        Flag(
            "scrape-interval",
            Kind.DURATION,
            "15s",
            "How often your Prometheus scrapes: what windows are measured against.",
            _GROUP,
        ),
        Flag("strict", Kind.BOOL, "false", "Exit with status 2 for warnings too, as for faults.", _GROUP),
        Flag(
            "print-config",
            Kind.BOOL,
            "false",
            "Print the rules file that the prometheus-community chart makes of its values, and nothing else.",
            _GROUP,
        ),
        Flag(
            "output",
            Kind.TEXT,
            "text",
            "text, or json for one JSON document.",
            _GROUP,
            shorthand="o",
            metavar="format",
        ),
    )
}
"""The flags that only `fastpath check` has."""

_CONNECTION = (flag_table.RULES, flag_table.PROMETHEUS, flag_table.CLUSTER, flag_table.PROCESS)

TABLE: Mapping[str, Flag] = {
    **OWN,
    **{
        name: flag_table.TABLE[name]
        for name in ("metrics-relist-interval", "metrics-max-age", "discovery-max-bytes")
    },
    **{
        name: flag
        for name, flag in flag_table.TABLE.items()
        if flag.group in {flag_table.PROMETHEUS, flag_table.CLUSTER}
    },
}
"""The flags of `fastpath check` that its help shows; it reads all of `fastpath serve`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What to check and how. `scrape_interval` in seconds; texts are "" when not given.

    `asks_prometheus` says that an address was given; `options` has the connections, and the files in `config`.
    """

    files: tuple[str, ...]
    options: Options
    asks_prometheus: bool = False
    why: str = ""
    object: str = ""
    selector: str = ""
    metric_selector: str = ""
    scrape_interval: float = 15.0
    strict: bool = False
    print_config: bool = False
    output: str = "text"


def parse_check(argv: Sequence[str]) -> tuple[CheckOptions, tuple[str, ...]]:
    """Return what a command line (without the program's name and the verb) asks for, and sentences to print once.

    Raises InputError with every fault.
    """
    scanned = pflag.scan(argv, {**flag_table.TABLE, **OWN})
    given = [each for each in scanned.given if each.flag.group in _CONNECTION]
    files = (*scanned.positional, *(each.text for each in given if each.flag.name == "config"))
    faults: list[errors.Fault] = []
    if not files:
        expected = "missing: expected rules files, chart values, folders of them, or - for standard input"
        faults.append(errors.Fault("FILE", "", expected))
    own = _read_own(scanned.given, faults)
    config = flag_table.TABLE["config"]
    named = [Given(config, name) for name in files or (STDIN,)]
    connection = Scanned([*(each for each in given if each.flag is not config), *named], scanned.faults)
    options = Options()
    notices: tuple[str, ...] = ()
    try:
        options, notices = flags.build_options(connection)
    except errors.InputError as error:
        faults += error.faults
    asks = any(each.flag.name == "prometheus-url" for each in given)
    found = CheckOptions(files=files, options=options, asks_prometheus=asks, **own)
    faults += _check(found)
    if faults:
        raise errors.InputError(faults)
    return found, notices


def _read_own(given: Sequence[Given], faults: list[errors.Fault]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for flag, text in given:
        if flag.name not in OWN:
            continue
        try:
            values[flag.name.replace("-", "_")] = pflag.read(flag, text)
        except ValueError:
            expected = f"expected {pflag.expectation(flag.kind)}"
            faults.append(errors.Fault(f"--{flag.name}", reader.shown_text(text), expected))
    return values


def _check(found: CheckOptions) -> list[errors.Fault]:
    faults = []
    if found.output not in FORMATS:
        faults.append(
            errors.Fault("--output", reader.shown_text(found.output), f"expected {' or '.join(FORMATS)}")
        )
    if found.scrape_interval <= 0:
        faults.append(errors.Fault("--scrape-interval", "", "expected a duration above 0"))
    if found.why and not found.asks_prometheus:
        faults.append(
            errors.Fault("--why", found.why, "expected --prometheus-url too: the answer lies in Prometheus")
        )
    if found.object and not found.why:
        faults.append(errors.Fault("--object", found.object, "expected --why METRIC too"))
    for name, text in (("--selector", found.selector), ("--metric-selector", found.metric_selector)):
        if text and not found.object:
            faults.append(errors.Fault(name, text, "expected --object too"))
    if found.strict and (found.why or found.print_config):
        other = "--why" if found.why else "--print-config"
        faults.append(
            errors.Fault("--strict", "", f"expected not to be given with {other}, which prints no warnings")
        )
    if found.print_config and found.output != "text":
        faults.append(errors.Fault("--output", found.output, "expected not to be given with --print-config"))
    return faults


def asks_for_help(argv: Sequence[str]) -> bool:
    """Say whether the command line has `--help` or `-h` as a flag."""
    return pflag.scan(argv, {**flag_table.TABLE, **OWN}).help


def render_help() -> str:
    """Return the text of `fastpath check --help`."""
    about = [
        "Usage: fastpath check FILE... [flags]",
        "",
        "Prints what each rule asks Prometheus and what it serves, and everything that is wrong with it. FILE is a rules file,",
        "the values of the prometheus-community chart, a folder of them, or - for standard input.",
        "",
        "Exit status: 0 for files without a fault, also with warnings unless --strict is given; with --why, when an",
        "autoscaler gets a value. 1 when Prometheus or the API server cannot be asked; with --why, when an autoscaler gets",
        "no value. 2 for faults in a file or on the command line.",
        "",
        "With --prometheus-url the series are read and the queries asked for real; with --lister-kubeconfig the kinds of",
        "objects are those of the cluster, else the built-in ones. All flags of `fastpath serve` are accepted.",
        "",
    ]
    return "\n".join([*about, *flags.help_lines(TABLE)])
