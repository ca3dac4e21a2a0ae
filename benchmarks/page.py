"""Writes docs/performance.md and docs/performance-details.md: `python -m benchmarks.page [RESULTS]`.

Each page has a hand-written text of the same name in benchmarks/pages. The texts hold no figure that the
results have. They name it in double braces instead, so that a new run changes pages and figures together:

- a figure, `serve.warm_16_p50_ms`, with a Python format if it needs one: `serve.warm_16_share_of_bare:.0%`;
- `serve.settings.hpas`, `serve.machine.cpu`, `serve.time`: the rest of an entry;
- `goals`, `missed`, `figures`, `clients`, `costs` and `ratios NAME`: tables that this
  module builds;
- `versus serve.warm_1_p50_ms`: a row's cells, ours, those of each form of the peer, and the ratio;
- `run` and `behind`: where the figures are from, and where the peer is ahead;
- `when serve.shipped_memory_mib` and `end`, each on a line of its own: the lines between them are omitted if
  the results have no such figure.

A text claims nothing that another run could contradict: what depends on the figures is computed here.

A name that the results do not have is an error, and no page is written.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import clients_figures, common, peer, profiles, suite
from benchmarks.suite import Entry

TEXTS = sorted(Path(__file__).with_name("pages").glob("*.md.in"))
FOLDER = common.ROOT / "docs"

_BLOCK = re.compile(r"^\{\{when (\S+)\}\}\n((?:(?!^\{\{when ).)*?)^\{\{end\}\}\n", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}")
_UNITS = {"_per_second": "/s", "_seconds": " s", "_ms": " ms", "_mib": " MiB", "_share": ""}


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

    blocks = 1
    while blocks:  # the inner ones first
        text, blocks = _BLOCK.subn(keep, text)
    page = _PLACEHOLDER.sub(fill, text)
    if unknown:
        raise UnknownError("; ".join(unknown))
    return page


def _fill(placeholder: str, results: Mapping[str, Entry]) -> str:
    name, _, form = placeholder.partition(":")
    word, _, argument = name.partition(" ")
    if name in _TABLES:
        return _TABLES[name](results)
    if word == "ratios":
        return _ratios(results, argument)
    if word == "versus":
        return _versus(results, argument)
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


def _entry(results: Mapping[str, Entry], name: str) -> Entry:
    if name not in results:
        raise UnknownError(f"the results have no benchmark {name}")
    return results[name]


def _names(results: Mapping[str, Entry]) -> list[str]:
    """Return the benchmarks that the results have, in the order of the suite."""
    return [name for name in suite.CASES if name in results] + sorted(results.keys() - suite.CASES.keys())


def _run(results: Mapping[str, Entry]) -> str:
    """Return where the figures are from: one commit and one machine, or which are from where."""
    origins: dict[tuple[str, str], list[str]] = {}
    for name in _names(results):
        entry = results[name]
        where = f"{entry['machine']['cores']} cores of {entry['machine']['cpu']}"
        origins.setdefault((entry.get("commit", "unknown"), where), []).append(name)
    if len(origins) == 1:
        ((commit, where),) = origins
        days = " and ".join(sorted({entry["time"][:10] for entry in results.values()}))
        return f"All figures are of commit `{commit}`, measured on one machine, {where}, on {days}."
    lines = [
        f"- commit `{commit}`, {where}: {', '.join(names)}" for (commit, where), names in origins.items()
    ]
    return "\n".join(
        ["**These figures are from several runs.** Compare only those of one line:", "", *lines, ""]
    )


def _behind(results: Mapping[str, Entry]) -> str:
    """Return where the peer is ahead of Fastpath."""
    behind = peer.find_behind(_entry(results, "serve")["figures"])
    if not behind:
        return "prometheus-adapter is ahead in no row of the comparison."
    return f"prometheus-adapter is ahead in {len(behind)} rows of the comparison: {', '.join(behind)}."


def _goals(results: Mapping[str, Entry]) -> str:
    """Return all goals. Goals with the same description also show the name of the figure."""
    goals = list(_each_goal(results))
    times = Counter(goal["what"] for _, goal, _ in goals)
    rows = [
        (
            goal["what"] if times[goal["what"]] == 1 else f"{goal['what']} (`{name}`)",
            *cells,
            "reached" if goal["reached"] else "**missed**",
        )
        for name, goal, cells in goals
    ]
    return _table(("what", "goal", "measured", ""), rows)


def _each_goal(results: Mapping[str, Entry]) -> Iterator[tuple[str, Any, tuple[str, str]]]:
    """Yield benchmark and figure, the goal, and the cells with its limit and what was measured."""
    for name in _names(results):
        for figure, goal in results[name]["goals"].items():
            limit = common.show_limit(goal["limit"], goal["unit"], at_least=goal["at_least"])
            yield f"{name} {figure}", goal, (limit, _show(results[name], figure))


def _missed(results: Mapping[str, Entry]) -> str:
    """Return the goals that are not reached."""
    rows = [(goal["what"], *cells) for _, goal, cells in _each_goal(results) if not goal["reached"]]
    return _table(("missed goal", "goal", "measured"), rows) if rows else "None: all goals are reached."


def _figures(results: Mapping[str, Entry]) -> str:
    """Return a section for each benchmark: sizes and time, and the figures without the peer's."""
    parts = []
    for name in _names(results):
        entry = results[name]
        about = f"{suite.CASES[name].about}. " if name in suite.CASES else ""
        sizes = ", ".join(f"{size} {value}" for size, value in entry["settings"].items())
        where = entry["machine"]
        rows = [
            (f"`{figure}`", common.show_number(value))
            for figure, value in entry["figures"].items()
            if not figure.startswith(tuple(f"{form}_" for form in peer.FORMS))
        ]
        ran = f"Ran {entry['time']}, load average {where['load']}."
        heading = f"### {name}\n\n{about[:1].upper()}{about[1:]}Sizes: {sizes}. {ran}\n\n"
        parts.append(heading + _table(("figure", "measured"), rows))
    return "\n\n".join(parts)


def _clients(results: Mapping[str, Entry]) -> str:
    entry = _entry(results, "clients")
    return clients_figures.table(entry["figures"], entry["notes"])


def _costs(_: Mapping[str, Entry]) -> str:
    """Return the largest parts of each profile, and the commit of the profiles."""
    kept = profiles.read()
    commits = ", ".join(dict.fromkeys(f"`{profile.commit}`" for profile in kept))
    rows = [
        (profile.about, ", ".join(f"{part} {share}" for part, share in profile.parts)) for profile in kept
    ]
    return f"{_table(('what', 'largest parts'), rows)}\n\nProfiles of commit {commits}."


def _ratios(results: Mapping[str, Entry], name: str) -> str:
    """Return a table of our figures beside those of each form of the peer, and the ratio to the last form."""
    entry = _entry(results, name)
    *_, last = peer.FORMS
    rows = [
        (f"`{figure}`", _versus(results, f"{name}.{figure}"))
        for figure in entry["figures"]
        if f"{last}_{figure}_ratio" in entry["figures"]
    ]
    return _table(("figure", "Fastpath", *peer.FORMS, f"Fastpath / {last}"), rows)


def _versus(results: Mapping[str, Entry], name: str) -> str:
    """Return the cells of a figure: ours, those of each form of the peer, and the ratio to the last form."""
    benchmark, _, figure = name.partition(".")
    entry = _entry(results, benchmark)
    if figure not in entry["figures"]:
        raise UnknownError("the results have no such figure")
    *_, last = peer.FORMS
    cells = [figure, *(f"{form}_{figure}" for form in peer.FORMS)]
    shown = [_show(entry, cell) if cell in entry["figures"] else "" for cell in cells]
    ratio = entry["figures"].get(f"{last}_{figure}_ratio")
    if ratio is None:
        ratio = entry["figures"][figure] / entry["figures"][cells[-1]]
    return " | ".join([*shown, f"{common.show_number(ratio)}x"])


def _show(entry: Entry, figure: str) -> str:
    """Return a figure with the unit that its name ends with."""
    unit = next((unit for suffix, unit in _UNITS.items() if figure.endswith(suffix)), "")
    return f"{common.show_number(entry['figures'][figure])}{unit}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_TABLES: Mapping[str, Callable[[Mapping[str, Entry]], str]] = {
    "run": _run,
    "behind": _behind,
    "goals": _goals,
    "missed": _missed,
    "figures": _figures,
    "clients": _clients,
    "costs": _costs,
}


def main(arguments: Sequence[str]) -> int:
    """Write all pages, or none; returns the exit status."""
    results = Path(arguments[0]) if arguments else suite.RESULTS
    pages = {}
    for text in TEXTS:
        try:
            pages[text.stem] = render(text.read_text(encoding="utf-8"), suite.read(results))
        except UnknownError as error:
            print(f"benchmarks.page: {text.name}: {error} ({results.name})", file=sys.stderr)
            return 2
    for name, page in pages.items():
        (FOLDER / name).write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
