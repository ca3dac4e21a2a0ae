"""The pages and tables of docs that are generated from code: ``python -m scripts.generate.docs``."""

import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from adapter.cli import verbs
from adapter.config import options
from adapter.config.option_fields import Command, by_group, flags_of, spelled
from adapter.config.pflag import Flag
from adapter.model.autoscaling.view import VERSION, AutoscalerView, FleetView
from adapter.telemetry import metrics
from scripts.generate import field_tables

DOCS = Path(__file__).parent.parent.parent / "docs" / "reference"


_HEAD = """\
# Flags

Flags are written `--name=value` or `--name value`, before or after other arguments. Durations are Go's
(`30s`, `1m30s`). An unknown flag is an error that names the nearest flag. `fastpath VERB --help` shows the
flags of a verb, and `--help-all` also those that it accepts without effect.

The exit status of a verb is 0 on success, 2 if the command line or a file is not valid, and 1 if it failed
otherwise or its result is negative, such as a metric that is not served.
"""
_GUIDES = {
    "slices": "../guides/more-scalers.md",
    "explain": "../guides/fast-scaler.md",
    "evaluate": "../guides/evaluate.md",
    "simulate": "../guides/simulate.md",
    "forecast": "../guides/forecasts.md",
    "schedule": "../guides/schedules.md",
    "boost": "../guides/boost.md",
    "convert": "../guides/fast-scaler.md",
}

COMMANDS: tuple[Command[Any], ...] = tuple(verb.load_command() for verb in verbs.listed().values())
"""The command line of every verb."""


def render_markdown(table: Mapping[str, Flag]) -> str:
    """Return flags as tables in Markdown, one for each group."""
    lines = []
    for group, flags in by_group(table).items():
        lines += [f"## {group}", "", "| flag | default | meaning |", "| --- | --- | --- |"]
        for flag in flags:
            default = f"`{flag.default}`" if flag.default else ""
            lines.append(f"| `{spelled(flag)}` | {default} | {flag.help.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def render_flags() -> str:
    """Return docs/reference/flags.md: of each verb the flags that `fastpath serve` does not have."""
    known = set(options.SERVE.table.values())
    lines = [_HEAD]
    for command in COMMANDS:
        lines += [f"# `fastpath {command.verb}`", "", f"    fastpath {command.verb} {command.usage}", ""]
        lines += [command.about.strip(), ""]
        if guide := _GUIDES.get(command.verb):
            lines += [f"[The guide]({guide}) has the steps.", ""]
        if command is options.SCALE:
            continue
        own = flags_of(command.options)
        if command is not options.SERVE:
            shared = [f"`--{name}`" for name, flag in own.items() if flag in known]
            if shared:
                text = f"These flags are those of `fastpath serve`: {', '.join(shared)}."
                lines += [*textwrap.wrap(text, 110, break_on_hyphens=False), ""]
            own = {name: flag for name, flag in own.items() if flag not in known}
        lines.append(render_markdown(own))
        lines += _render_deprecated(command)
    lines += [
        "# Flags without effect",
        "",
        "`fastpath serve` accepts these so that prometheus-adapter's command line works.",
    ]
    return "\n".join([*lines, "", render_markdown({flag.name: flag for flag in options.SERVE.ignored})])


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


def render_schema() -> str:
    """Return docs/reference/debug.schema.json: the documents below ``/debug/fastpath/autoscalers``."""
    (autoscaler, fleet), parts = msgspec.json.schema_components(
        (AutoscalerView, FleetView), ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        part["description"] = inspect.cleandoc(part["description"])
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Documents of autoscalers, {VERSION}",
        "oneOf": [autoscaler, fleet],
        "$defs": parts,
    }
    return json.dumps(schema, indent=1) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "flags.md": render_flags,
    "metrics.md": render_metrics,
    "debug.schema.json": render_schema,
}
"""File name below docs/reference/ and what renders it."""


if __name__ == "__main__":
    for name, render in PAGES.items():
        (DOCS / name).write_text(render())
    for path in (field_tables.DOCS / name for name in field_tables.PAGES):
        path.write_text(field_tables.render(path.read_text()))
