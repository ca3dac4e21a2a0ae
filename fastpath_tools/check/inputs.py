"""The files that `fastpath check` and `fastpath doctor` read: rules, values of the chart, manifests."""

import re
import sys
from collections.abc import Iterable, Sequence

from adapter.cli.command_line import STDIN
from adapter.config import rules_file
from adapter.config.rules_file import Parsed, RulesConfig
from adapter.errors import Fault, InputError
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from adapter.provider import text_files
from adapter.provider.rule_source import EMPTY, RulesFiles
from adapter.rules import compile as compiler
from fastpath_tools.check import autoscalers
from fastpath_tools.check.autoscalers import Autoscalers
from fastpath_tools.live import chart_values as helm_values

_NOT_BUILT_IN = (
    "not a built-in kind of Kubernetes: give --lister-kubeconfig to see whether your cluster has it"
)
_LAST_STEP = re.compile(r"(\.[^.\[\]]*|\[[^\[\]]*\])\Z")


def read_texts(files: Sequence[str], fatal: list[Fault]) -> list[tuple[str, str]]:
    """Return name and text of each file, folders opened, ``-`` read from standard input.

    `fatal` grows with what cannot be read.
    """
    texts: list[tuple[str, str]] = []
    for name in files:
        if name != STDIN:
            texts += RulesFiles([name], flag="").texts(fatal)
            continue
        try:
            texts.append(("<stdin>", text_files.read_bytes(sys.stdin.buffer).decode()))
        except OSError as error:
            fatal.append(Fault("", "<stdin>", f"expected a readable file: {error.strerror}"))
        except UnicodeDecodeError:
            fatal.append(Fault("", "<stdin>", "expected a readable file: it is not UTF-8 text"))
    return texts


def parse(files: Sequence[str]) -> Parsed:
    """Return what the files say together, the values of the chart converted."""
    fatal: list[Fault] = []
    return _parse(read_texts(files, fatal), fatal)


def parse_with_autoscalers(files: Sequence[str]) -> tuple[Parsed, Autoscalers]:
    """Return what the files say together, and the autoscalers and schedules of those that are manifests."""
    fatal: list[Fault] = []
    texts, found = [], []
    for source, text in read_texts(files, fatal):
        read = autoscalers.read(text, source)
        if read is None:
            texts.append((source, text))
        else:
            found.append(read)
    given = tuple(one for read in found for one in read.given)
    schedules = tuple(one for read in found for one in read.schedules)
    faults = tuple(one for read in found for one in read.faults)
    return _parse(texts, fatal), Autoscalers(given, schedules, faults)


def _parse(texts: Sequence[tuple[str, str]], fatal: Sequence[Fault]) -> Parsed:
    fatal = list(fatal)
    fatal += [Fault("", source, EMPTY) for source, text in texts if not text.strip()]
    parsed = [
        helm_values.rules_from_chart(text, source)
        if helm_values.is_chart_values(text)
        else rules_file.parse_rules(text, source)
        for source, text in texts
    ]
    merged, doubled = rules_file.merge([one.config for one in parsed])
    return Parsed(
        merged,
        (*(fault for one in parsed for fault in one.faults), *doubled),
        (*fatal, *(fault for one in parsed for fault in one.fatal)),
        rules_file.merge([one.readable for one in parsed])[0],
    )


def render_config(files: Sequence[str]) -> str:
    """Return the rules file that the chart makes of its values.

    A rules file is returned as it is. InputError.
    """
    fatal: list[Fault] = []
    rendered = []
    for source, text in read_texts(files, fatal):
        try:
            rendered.append(
                helm_values.render_config(text, source) if helm_values.is_chart_values(text) else text
            )
        except InputError as error:
            fatal += error.faults
    if fatal:
        raise InputError(fatal)
    return "---\n".join(rendered)


def assumed_catalogue(config: RulesConfig) -> tuple[Catalogue, tuple[Fault, ...]]:
    """Return the built-in kinds and those that the rules name with a group, and a note on each of these."""
    added: dict[APIResource, None] = {}
    notes = []
    for rule in (*config.rules, *config.external_rules):
        for override in rule.resources.overrides:
            group, name = override.group, override.resource.lower()
            if not group or BUILTIN.lookup(name, group) is not None:
                continue
            kind = APIResource(
                group, "v1", name, name, name, namespaced=True, verbs=frozenset(), preferred=True
            )
            added[kind] = None
            place, value = f"{rule.path}.resources.overrides.{override.label}", f"{override.resource}.{group}"
            notes.append(Fault(place, value, _NOT_BUILT_IN, rule.source, rule.line))
    return Catalogue([*BUILTIN, *added]), tuple(notes)


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
