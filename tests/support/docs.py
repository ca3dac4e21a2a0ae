"""The pages of docs/reference that are generated from code. ``python -m tests.support.docs`` writes them."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from adapter.cli import convert, explain
from adapter.cli.boost import command
from adapter.cli.check import flags as checkflags
from adapter.cli.deploy import flags as deployflags
from adapter.cli.doctor import flags as doctorflags
from adapter.config import flags
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


def render_flags() -> str:
    """Return docs/reference/flags.md: the flags of every command."""
    used, _, unused = flags.render_markdown().partition(_UNUSED)
    sections = {
        "`fastpath serve`": (_SERVE, used),
        "`fastpath check`": (_CHECK, flags.render_markdown(checkflags.OWN)),
        "`fastpath certs`": (flags.render_markdown(deployflags.CERTS),),
        "`fastpath preflight`": (flags.render_markdown(deployflags.PREFLIGHT),),
        "`fastpath explain`": (_EXPLAIN, *_render_actions(explain_flags())),
        "`fastpath boost`": (_BOOST, *_render_actions(boost_flags())),
        "`fastpath convert`": (_CONVERT, *_render_actions(convert_flags())),
        "`fastpath doctor`": (_DOCTOR, flags.render_markdown(doctorflags.OWN)),
        "Flags without effect": (_WITHOUT_EFFECT, _UNUSED + unused),
    }
    parts = [_HEAD]
    for title, lines in sections.items():
        parts += [f"# {title}", "", *lines]
    return "\n".join(parts)


def explain_flags() -> list[argparse.Action]:
    """Return the flags of `fastpath explain`."""
    return _flags_of(explain.build_parser())


def boost_flags() -> list[argparse.Action]:
    """Return the flags of `fastpath boost`."""
    return _flags_of(command.build_parser())


def convert_flags() -> list[argparse.Action]:
    """Return the flags of `fastpath convert`."""
    return _flags_of(convert.build_parser())


def _flags_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [each for each in parser._actions if each.option_strings and each.dest != "help"]


def _render_actions(actions: list[argparse.Action]) -> list[str]:
    lines = ["| flag | default | meaning |", "| --- | --- | --- |"]
    for each in actions:
        kind = "" if each.nargs == 0 else " int" if each.type is int else " string"
        names = ", ".join(f"`{name}{kind}`" for name in each.option_strings)
        default = f"`{each.default}`" if each.default else ""
        lines.append(f"| {names} | {default} | {each.help} |")
    return [*lines, ""]


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
