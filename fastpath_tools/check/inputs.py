"""The files that `fastpath check` reads: rules, values of the chart, manifests, and the faults in them."""

import re
from collections.abc import Iterable, Sequence

from adapter.config.rules_file import Parsed
from adapter.errors import Fault
from adapter.model.resources import Catalogue
from adapter.rules import compile as compiler
from fastpath_tools.check import autoscalers
from fastpath_tools.check.autoscalers import Autoscalers
from fastpath_tools.live import rules_files

_LAST_STEP = re.compile(r"(\.[^.\[\]]*|\[[^\[\]]*\])\Z")


def parse_with_autoscalers(files: Sequence[str]) -> tuple[Parsed, Autoscalers]:
    """Return what the files say together, and the autoscalers and schedules of those that are manifests."""
    fatal: list[Fault] = []
    found = Autoscalers()
    given = rules_files.read_texts(files, fatal)
    texts = [(source, text) for source, text in given if not autoscalers.read(text, source, found)]
    return rules_files.combine(texts, fatal), found


def collect_faults(parsed: Parsed, catalogue: Catalogue) -> tuple[Fault, ...]:
    """Return the faults that reading and compiling find, in the order of files and lines.

    A rule that reading refuses is compiled nevertheless, as far as it could be read, so that one run shows
    all of its faults. A fault that only follows from another is left out.
    """
    read = _once((*parsed.fatal, *parsed.faults))
    compiled = compiler.compile_rules(parsed.readable, catalogue)[1]
    own = [fault for fault in compiled if not any(_follows(fault, earlier) for earlier in read)]
    files = list(dict.fromkeys(fault.source for fault in (*read, *own)))
    return tuple(sorted((*read, *own), key=lambda fault: (files.index(fault.source), fault.line)))


def _once(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the faults without those that repeat, for another key, what kind of file it is."""
    kept: dict[tuple[str, str, str], Fault] = {}
    for fault in faults:
        about_the_file = fault.path.isidentifier() and not fault.expected.startswith("unknown key")
        kept.setdefault((fault.source, fault.expected, "" if about_the_file else str(fault)), fault)
    return tuple(kept.values())


def _follows(fault: Fault, earlier: Fault) -> bool:
    """Tell whether a fault is about what was already refused.

    The same place, one around or below it, or a key that it misspells.
    """
    if fault.source != earlier.source:
        return False
    around = (fault.path, earlier.path)
    if any(_is_below(one, other) for one, other in (around, around[::-1])):
        return True
    return not fault.value and _parent(fault.path) == _parent(earlier.path)


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith((f"{parent}.", f"{parent}["))


def _parent(path: str) -> str:
    return _LAST_STEP.sub("", path)
