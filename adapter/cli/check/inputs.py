"""The files that `fastpath check` and `fastpath doctor` read: rules files and the values of the chart."""

import sys
from collections.abc import Sequence

from adapter.cli.command_line import STDIN
from adapter.config import chart, rules_file
from adapter.config.rules_file import Parsed, RuleConfig, RulesConfig
from adapter.errors import Fault, InputError
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from adapter.provider.rule_source import EMPTY, RulesFiles


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
            texts.append(("<stdin>", sys.stdin.buffer.read().decode()))
        except UnicodeDecodeError:
            fatal.append(Fault("", "<stdin>", "expected a readable file: it is not UTF-8 text"))
    return texts


def parse(files: Sequence[str]) -> Parsed:
    """Return what the files say together, the values of the chart converted."""
    fatal: list[Fault] = []
    texts = read_texts(files, fatal)
    fatal += [Fault("", source, EMPTY) for source, text in texts if not text.strip()]
    parsed = [_parse(text, source) for source, text in texts]
    merged, doubled = rules_file.merge([one.config for one in parsed])
    return Parsed(
        merged,
        (*(fault for one in parsed for fault in one.faults), *doubled),
        (*fatal, *(fault for one in parsed for fault in one.fatal)),
        rules_file.merge([one.readable for one in parsed])[0],
    )


def _parse(text: str, source: str) -> Parsed:
    return (
        chart.rules_from_chart(text, source)
        if chart.is_chart_values(text)
        else rules_file.parse_rules(text, source)
    )


def render_config(files: Sequence[str]) -> str:
    """Return the rules file that the chart makes of its values.

    A rules file is returned as it is. InputError.
    """
    fatal: list[Fault] = []
    rendered = []
    for source, text in read_texts(files, fatal):
        try:
            rendered.append(chart.render_config(text, source) if chart.is_chart_values(text) else text)
        except InputError as error:
            fatal += error.faults
    if fatal:
        raise InputError(fatal)
    return "---\n".join(rendered)


def assumed_catalogue(config: RulesConfig) -> tuple[Catalogue, tuple[Fault, ...]]:
    """Return the built-in kinds and those that the rules name with a group, and a note on each of these."""
    unknown = [
        (rule, override)
        for rule in (*config.rules, *config.external_rules)
        for override in rule.resources.overrides
        if override.group and BUILTIN.lookup(override.resource, override.group) is None
    ]
    added = dict.fromkeys(_assumed(override.group, override.resource.lower()) for _, override in unknown)
    notes = [
        _unverified(rule, override.label, f"{override.resource}.{override.group}")
        for rule, override in unknown
    ]
    return Catalogue([*BUILTIN, *added]), tuple(notes)


def _assumed(group: str, name: str) -> APIResource:
    return APIResource(group, "v1", name, name, name, namespaced=True, verbs=frozenset(), preferred=True)


def _unverified(rule: RuleConfig, label: str, resource: str) -> Fault:
    sentence = (
        "not a built-in kind of Kubernetes: give --lister-kubeconfig to see whether your cluster has it"
    )
    return Fault(f"{rule.path}.resources.overrides.{label}", resource, sentence, rule.source, rule.line)
