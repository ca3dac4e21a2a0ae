"""The pages of docs/reference that are generated from code. ``python -m tests.support.docs`` writes them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adapter.cli import convert, demo, explain
from adapter.cli.boost import command as boost
from adapter.cli.check import options as checkoptions
from adapter.cli.deploy import certs, preflight
from adapter.cli.doctor import options as doctoroptions
from adapter.cli.evaluate import command as evaluate
from adapter.config import options
from adapter.config.flags import Command, flags_of, render_markdown
from adapter.telemetry import metrics

DOCS = Path(__file__).parent.parent.parent / "docs" / "reference"


_UNUSED = "## Accepted"
"""How the groups of flags begin that have no effect."""

_HEAD = """\
# Flags

Flags are written `--name=value` or `--name value`. Durations are Go's (`30s`, `1m30s`). An unknown flag is
refused with the nearest name. `fastpath COMMAND --help` shows the same.

The exit status of a command is 0 if it did what it was asked, 2 if its flags or documents are not valid, and
1 if it failed otherwise or its answer is no, as for a metric that is not served.

`fastpath evaluate` has [a page of its own](../guides/evaluate.md). `fastpath demo` takes `--for DURATION`,
after which it ends, and `--port PORT`.
"""
_SERVE = """\
All of prometheus-adapter's flags, with the same names and defaults, and Fastpath's own. `fastpath scale`
takes the same; those about callers and the metrics APIs have no effect there.
[The last section](#flags-without-effect) has the flags that are accepted without effect.
"""
_CHECK = """\
It also takes the flags of `fastpath serve`. Those about the connections to Prometheus and the API server, and
about how far back discovery looks, have an effect.
"""
_EXPLAIN = """\
Its argument is the autoscaler, `NAMESPACE/NAME`. [The guide](../guides/fast-scaler.md) describes the output.
"""
_BOOST = """\
Its argument is the manifest, a file or `-` for standard input. [The guide](../guides/boost.md) has the steps.
"""
_CONVERT = """\
Its arguments are the manifests, files or `-` for standard input. [The guide](../guides/fast-scaler.md) has
the steps.
"""
_DOCTOR = """\
Its argument is an autoscaler, `NAMESPACE/NAME`, or a namespace; without it all are examined. It also takes
`--config` and the flags of `fastpath serve` about the connection to Prometheus. Without `--config` it reads
the rules from the cluster. Without `--prometheus-url` it does not ask Prometheus.
"""
_WITHOUT_EFFECT = "`fastpath serve` accepts these so that prometheus-adapter's command line works.\n"


COMMANDS: tuple[Command[Any], ...] = (
    options.SERVE,
    options.SCALE,
    checkoptions.COMMAND,
    doctoroptions.COMMAND,
    explain.COMMAND,
    evaluate.COMMAND,
    boost.COMMAND,
    convert.COMMAND,
    certs.COMMAND,
    preflight.COMMAND,
    demo.COMMAND,
)
"""The command line of every verb."""

_WITHOUT_EFFECT = "Flags of `fastpath serve` and `fastpath scale` that are accepted without effect"


def render_flags() -> str:
    """Return the page of all flags: of each verb those that no verb before it has with the same meaning."""
    lines = [
        "# Flags",
        "",
        "Flags are written `--name=value` or `--name value`, before or after other arguments; durations are Go's (`30s`, `1m30s`). An",
        "unknown flag is refused with the nearest name. `fastpath VERB --help` lists the flags of a verb, `--help-all` those that it",
        "accepts without effect as well.",
        "",
        "Exit status of every verb: 0 when it is done, 1 when a run failed, 2 when the command line or a file is wrong.",
        "",
    ]
    for command in COMMANDS:
        own = flags_of(command.options)
        lines += [f"## `fastpath {command.verb} {command.usage}`", "", command.about.strip(), ""]
        if command is options.SCALE:
            continue
        if command is not options.SERVE:
            known = set(options.SERVE.table.values())
            shared = [f"`--{name}`" for name, flag in own.items() if flag in known]
            if shared:
                lines += [f"As `fastpath serve`: {', '.join(shared)}.", ""]
            own = {name: flag for name, flag in own.items() if flag not in known}
        lines.append(render_markdown(own, level=3))
        lines += _render_deprecated(command)
    ignored = {flag.name: flag for flag in options.SERVE.ignored}
    return "\n".join([*lines, f"## {_WITHOUT_EFFECT}", "", render_markdown(ignored, level=3)])


def _render_deprecated(command: Command[Any]) -> list[str]:
    lines = []
    for flag in command.deprecated:
        value = f"={flag.instead_value}" if flag.instead_value else ""
        lines += [f"`--{flag.name}` is deprecated: use `--{flag.instead}{value}`.", ""]
    return lines


def render_metrics() -> str:
    """Return docs/reference/metrics.md: every self-metric."""
    lines = [
        "# Metrics about Fastpath",
        "",
        "Fastpath serves these on `/metrics`, and the usual `process_*` metrics. Names that dashboards know",
        "from API servers and from prometheus-adapter are kept. [Monitoring](../guides/monitoring.md) says",
        "which to alert on, and [limits](limits.md) which show that a limit is reached.",
        "",
        "| metric | type | labels | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for row in metrics.METRICS:
        values = row.values or tuple(() for _ in row.labels)
        labels = ", ".join(
            f"`{label}`" + (f" ({', '.join(known)})" if known else "")
            for label, known in zip(row.labels, values, strict=True)
        )
        lines.append(f"| `{row.name}` | {row.type} | {labels} | {row.help} |")
    return "\n".join([*lines, ""])


PAGES: Mapping[str, Callable[[], str]] = {"flags.md": render_flags, "metrics.md": render_metrics}
"""File name below docs/reference/ and what renders it."""


if __name__ == "__main__":
    for name, render in PAGES.items():
        (DOCS / name).write_text(render())
