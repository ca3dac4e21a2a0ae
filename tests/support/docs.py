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


def render_flags() -> str:
    """Return docs/reference/flags.md: the flags of every verb that has a table of them."""
    return "\n".join(
        [
            "# Flags of `fastpath serve`",
            "",
            "The complete set of prometheus-adapter's flags, with the same names and defaults, and our own. Flags are written",
            "`--name=value` or `--name value`; durations are Go's (`30s`, `1m30s`). An unknown flag is refused with the nearest name.",
            "`fastpath scale` takes the same; those about callers and the metrics APIs mean nothing to it.",
            "",
            flags.render_markdown(),
            "# Flags of `fastpath check`",
            "",
            "It takes every flag of `fastpath serve` as well; those that matter are about the connections to Prometheus and the API",
            "server, and how far back discovery looks.",
            "",
            flags.render_markdown(checkflags.OWN),
            "# Flags of `fastpath certs`",
            "",
            flags.render_markdown(deployflags.CERTS),
            "# Flags of `fastpath preflight`",
            "",
            flags.render_markdown(deployflags.PREFLIGHT),
            "# Flags of `fastpath explain`",
            "",
            "Before or after them stands the autoscaler, `NAMESPACE/NAME`; [the fast-scaler](../guides/fast-scaler.md) has what is shown.",
            "",
            *_render_actions(explain_flags()),
            "",
            "# Flags of `fastpath boost`",
            "",
            "Before or after them stands the manifest, a file or `-` for standard input.",
            "",
            *_render_actions(boost_flags()),
            "",
            "# Flags of `fastpath convert`",
            "",
            "Before or after them stand the manifests, files or `-` for standard input; [the fast-scaler](../guides/fast-scaler.md) has the steps.",
            "",
            *_render_actions(convert_flags()),
            "",
            "# Flags of `fastpath doctor`",
            "",
            "Before or after them stands an autoscaler, `NAMESPACE/NAME`, a namespace, or nothing for all. It takes the flags of `fastpath serve`",
            "about the connection to Prometheus, and `--config`, as well. Neither is required: without `--config` the rules are read from the",
            "cluster, and without `--prometheus-url` Prometheus is not asked.",
            "",
            flags.render_markdown(doctorflags.OWN),
        ]
    )


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
    return lines


def render_metrics() -> str:
    """Return docs/reference/metrics.md: every self-metric."""
    lines = [
        "# Metrics about Fastpath itself",
        "",
        "Served on `/metrics`. Names that dashboards know from API servers and from prometheus-adapter are kept. Beside these there",
        "are the usual `process_*` metrics. [Limits](limits.md) says which of them show that a limit is reached.",
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
