"""Every fault of rules files, whether reading or compiling finds it.

A rule that reading refuses is compiled nevertheless, as far as it could be read, so that one run shows all of
its faults.
"""

import re
from collections.abc import Iterable

from adapter.config.rules_file import Parsed
from adapter.errors import Fault
from adapter.model.resources import Catalogue
from adapter.rules import compile as compiler

_LAST_STEP = re.compile(r"(\.[^.\[\]]*|\[[^\[\]]*\])\Z")


def collect(parsed: Parsed, catalogue: Catalogue) -> tuple[Fault, ...]:
    """Return the faults in the order of the files and lines, without those that only follow from another."""
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
