"""Rules from files: those of prometheus-adapter and Fastpath, and values of the chart."""

import sys
from collections.abc import Iterator, Sequence

from adapter.cli.command_line import STDIN
from adapter.config import rules_file
from adapter.config.rules_config import Parsed, RulesConfig, fault_at
from adapter.errors import Fault, InputError
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from adapter.provider import text_files
from adapter.provider.rule_source import EMPTY, RulesFiles
from fastpath_tools import yaml_documents
from fastpath_tools.live import chart_values as helm_values

_NOT_BUILT_IN = (
    "not a built-in kind of Kubernetes: give --lister-kubeconfig to see whether your cluster has it"
)


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
    return combine(read_texts(files, fatal), fatal)


def parse_usable(files: Sequence[str]) -> Parsed:
    """Return what the files say together. InputError for files that cannot be used."""
    parsed = parse(files)
    if parsed.fatal:
        raise InputError(parsed.fatal)
    return parsed


def combine(texts: Sequence[tuple[str, str]], fatal: Sequence[Fault]) -> Parsed:
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


def unread(text: str, source: str) -> Iterator[Fault]:
    """Yield the documents of a file after its first, which no reader of rules reads."""
    for number, document in enumerate(list(yaml_documents.read_documents(text, source))[1:], 2):
        line = document.faults[0].line if isinstance(document, InputError) else document.line_of("")
        expected = "only the first document of a file is read: put this one into another file"
        yield Fault(f"document {number}", "", expected, source, line)


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
    if len(rendered) > 1:
        fatal.append(Fault("--print-config", "", "expected one file: a rules file has one document"))
    if fatal:
        raise InputError(fatal)
    return "".join(rendered)


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
            notes.append(fault_at(rule, place, value, _NOT_BUILT_IN))
    return Catalogue([*BUILTIN, *added]), tuple(notes)
