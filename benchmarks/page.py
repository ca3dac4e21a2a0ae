"""Writes docs/performance.md and docs/performance-details.md: `python -m benchmarks.page [RESULTS]`.

Each page has a hand-written text of the same name in benchmarks/pages. The texts hold no figure that the
results have. They name it in double braces instead, so that a new run changes pages and figures together:

- a figure, `serve.warm_16_p50_ms`, with a Python format if it needs one: `serve.warm_16_share_of_bare:.0%`;
- `serve.settings.hpas`, `serve.machine.cpu`, `serve.time`: the rest of an entry;
- `goals`, `missed`, `figures` and `ratios NAME`: tables that this module builds;
- `when serve.shipped_memory_mib` and `end`, each on a line of its own: the lines between them are omitted if
  the results have no such figure.

A name that the results do not have is an error, and no page is written.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import common, peer, suite
from benchmarks.suite import Entry

TEXTS = sorted(Path(__file__).with_name("pages").glob("*.md"))
FOLDER = common.ROOT / "docs"

_BLOCK = re.compile(r"^\{\{when (\S+)\}\}\n(.*?)^\{\{end\}\}\n", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}")
_UNITS = {
    "_per_second": "/s",
    "_seconds": " s",
    "_ms": " ms",
    "_mib": " MiB",
    "_share": "",
}


class UnknownError(Exception):
    """The text names a figure that the results do not have."""


def render(text: str, results: Mapping[str, Entry]) -> str:
    """Return the page; UnknownError names every placeholder that means nothing."""
    unknown: list[str] = []

    def keep(match: re.Match[str]) -> str:
        return match[2] if _find(match[1], results) is not None else ""

    def fill(match: re.Match[str]) -> str:
        try:
            return _fill(match[1], results)
        except (UnknownError, ValueError) as error:
            unknown.append(f"{{{{{match[1]}}}}}: {error}")
            return ""

    page = _PLACEHOLDER.sub(fill, _BLOCK.sub(keep, text))
    if unknown:
        raise UnknownError("; ".join(unknown))
    return page


def _fill(placeholder: str, results: Mapping[str, Entry]) -> str:
    name, _, form = placeholder.partition(":")
    word, _, argument = name.partition(" ")
    if name == "goals":
        return _goals(results)
    if name == "missed":
        return _missed(results)
    if name == "figures":
        return _figures(results)
    if word == "ratios":
        return _ratios(results, argument)
    value = _find(name, results)
    if value is None:
        raise UnknownError("the results have no such figure")
    if form:
        return format(value, form)
    return common.show_number(value) if isinstance(value, int | float) else str(value)


def _find(name: str, results: Mapping[str, Entry]) -> object:
    """Return a figure or another part of an entry, None if it does not exist."""
    benchmark, _, rest = name.partition(".")
    entry = results.get(benchmark, {})
    if rest in entry.get("figures", {}):
        return entry["figures"][rest]
    found: object = entry
    for part in rest.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return None if isinstance(found, dict) else found


def _names(results: Mapping[str, Entry]) -> list[str]:
    """Return the benchmarks that the results have, in the order of the suite."""
    return [name for name in suite.CASES if name in results] + sorted(results.keys() - suite.CASES.keys())


def _goals(results: Mapping[str, Entry]) -> str:
    """Return all goals. Goals with the same description also show the name of the figure."""
    goals = [
        (name, figure, goal) for name in _names(results) for figure, goal in results[name]["goals"].items()
    ]
    times = Counter(goal["what"] for _, _, goal in goals)
    rows = []
    for name, figure, goal in goals:
        what = goal["what"] if times[goal["what"]] == 1 else f"{goal['what']} (`{name} {figure}`)"
        limit = common.show_limit(goal["limit"], goal["unit"], at_least=goal["at_least"])
        rows.append(
            (what, limit, _show(results[name], figure), "reached" if goal["reached"] else "**missed**")
        )
    return _table(("what", "goal", "measured", ""), rows)


def _missed(results: Mapping[str, Entry]) -> str:
    """Return the goals that are not reached."""
    rows = [
        (
            goal["what"],
            common.show_limit(goal["limit"], goal["unit"], at_least=goal["at_least"]),
            _show(results[name], figure),
        )
        for name in _names(results)
        for figure, goal in results[name]["goals"].items()
        if not goal["reached"]
    ]
    return _table(("missed goal", "goal", "measured"), rows)


def _figures(results: Mapping[str, Entry]) -> str:
    """Return a section for each benchmark: sizes, machine and time, and the figures without the peer's."""
    parts = []
    for name in _names(results):
        entry = results[name]
        about = f"{suite.CASES[name].about}. " if name in suite.CASES else ""
        sizes = ", ".join(f"{size} {value}" for size, value in entry["settings"].items())
        where = entry["machine"]
        machine = f"{where['cores']} cores of {where['cpu']}, load average {where['load']}"
        rows = [
            (f"`{figure}`", common.show_number(value))
            for figure, value in entry["figures"].items()
            if not figure.startswith(tuple(f"{form}_" for form in peer.FORMS))
        ]
        heading = (
            f"### {name}\n\n{about[:1].upper()}{about[1:]}Sizes: {sizes}. Ran {entry['time']}, {machine}.\n\n"
        )
        parts.append(heading + _table(("figure", "measured"), rows))
    return "\n\n".join(parts)


def _ratios(results: Mapping[str, Entry], name: str) -> str:
    """Return a table of our figures beside those of each form of the peer, and ours over theirs."""
    entry = results.get(name)
    if entry is None:
        raise UnknownError("the results have no such benchmark")
    figures = entry["figures"]
    rows = []
    for figure in figures:
        if f"{next(iter(peer.FORMS))}_{figure}" not in figures:
            continue
        row = [f"`{figure}`", _show(entry, figure)]
        for form in peer.FORMS:
            theirs = f"{form}_{figure}"
            ratio = figures.get(f"{theirs}_ratio", figures[figure] / figures[theirs])
            row += [_show(entry, theirs), f"{common.show_number(ratio)}x"]
        rows.append(row)
    head = ["figure", "Fastpath"]
    for form in peer.FORMS:
        head += [form, "ours / theirs"]
    return _table(head, rows)


def _show(entry: Entry, figure: str) -> str:
    """Return a figure with the unit that its name ends with."""
    unit = next((unit for suffix, unit in _UNITS.items() if figure.endswith(suffix)), "")
    return f"{common.show_number(entry['figures'][figure])}{unit}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(arguments: Sequence[str]) -> int:
    """Write all pages, or none; returns the exit status."""
    results = Path(arguments[0]) if arguments else suite.RESULTS
    pages = {}
    for text in TEXTS:
        try:
            pages[text.name] = render(text.read_text(encoding="utf-8"), suite.read(results))
        except UnknownError as error:
            print(f"benchmarks.page: {text.name}: {error} ({results.name})", file=sys.stderr)
            return 2
    for name, page in pages.items():
        (FOLDER / name).write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
