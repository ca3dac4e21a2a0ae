"""The rules file: prometheus-adapter's configuration format, read as strictly as upstream, with extra keys.

The shapes of the format, and the checks that need only the file. Whether templates and regular expressions
compile, and which metrics a rule gives, is decided in `adapter.rules`.

All faults of a file are reported at once, each with its path, its line and what is allowed. A fault inside a
rule excludes that rule; a fault around the rules makes the file unusable. An empty file is a configuration
without rules.
"""

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import yaml

from adapter import errors
from adapter.config import checks, rules_config, scrape_keys
from adapter.config.yaml import reader
from adapter.config.yaml.decode import Decoder, Fields, Leaf, ListOf, MapOf, Shape
from adapter.model import timestamps


class Sections(NamedTuple):
    """The parts of a document that hold rules, each entry with its path in the user's file."""

    rules: Sequence[tuple[str, yaml.Node]] = ()
    external_rules: Sequence[tuple[str, yaml.Node]] = ()
    resource_rules: tuple[str, yaml.Node] | None = None


_T = TypeVar("_T")
_Choice = TypeVar("_Choice", bound=enum.Enum)
_Default = TypeVar("_Default", bound=enum.Enum | None)

_CONVERT = "`fastpath check --print-config` converts them"
_CHART = f"a key of the Helm chart's values, not of the configuration file: {_CONVERT}"
_MANIFEST = (
    "this is a Kubernetes manifest and no rules file: of a ConfigMap give the content of its data key, of a "
    "HelmRelease that of spec.values"
)


def _override_instead(label: str, text: str) -> str:
    if label in {"namespaced", "template"}:
        return f"{label} belongs in resources, beside overrides: check the indentation"
    return f"expected a mapping of group and resource, such as {{resource: {reader.one_line(text) or 'pod'}}}"


_FILTER = Shape(
    "a series filter",
    {"is": Leaf.TEXT, "isNot": Leaf.TEXT},
    instead=lambda _, text: f"expected a mapping, such as {{is: {reader.shown_text(text)}}}",
)
_OVERRIDE = Shape("an override", {"group": Leaf.TEXT, "resource": Leaf.TEXT}, instead=_override_instead)
_RESOURCES = Shape(
    "resources", {"template": Leaf.TEXT, "overrides": MapOf(_OVERRIDE), "namespaced": Leaf.BOOLEAN}
)
_NAME = Shape(
    "name",
    {"matches": Leaf.TEXT, "as": Leaf.TEXT},
    instead=lambda _, text: f"expected a mapping, such as {{as: {reader.shown_text(text)}}}",
)
_RULE = Shape(
    "a rule",
    {
        "seriesQuery": Leaf.TEXT,
        "seriesFilters": ListOf(_FILTER),
        "resources": _RESOURCES,
        "name": _NAME,
        "metricsQuery": Leaf.TEXT,
        "onNaN": Leaf.TEXT,
        "onWarnings": Leaf.TEXT,
        "ttl": Leaf.TEXT,
        "maxAge": Leaf.TEXT,
        "maxSampleAge": Leaf.TEXT,
        "scrape": scrape_keys.SHAPE,
    },
)
_RESOURCE_RULE = Shape(
    "a resource rule",
    {
        "containerQuery": Leaf.TEXT,
        "nodeQuery": Leaf.TEXT,
        "resources": _RESOURCES,
        "containerLabel": Leaf.TEXT,
    },
    notes={"scrape": "this is for resourceRules.cpu: pods do not expose the working set of their containers"},
)
_CPU_RULE = Shape("a resource rule", {**_RESOURCE_RULE.fields, "scrape": scrape_keys.USAGE_SHAPE})
_RESOURCE_RULES = Shape(
    "resourceRules",
    {"cpu": _CPU_RULE, "memory": _RESOURCE_RULE, "window": Leaf.TEXT, "onWarnings": Leaf.TEXT},
)
_FILE = Shape(
    "a rules file",
    {"rules": Leaf.NODE, "externalRules": Leaf.NODE, "resourceRules": Leaf.NODE},
    notes={
        **dict.fromkeys(("default", "custom", "external", "resource", "existing", "prometheus"), _CHART),
        **dict.fromkeys(("apiVersion", "kind", "metadata", "data", "spec", "items"), _MANIFEST),
        "groups": "this looks like a file of recording or alerting rules, which Prometheus itself reads",
    },
)

VOCABULARY: Mapping[str, str] = {
    **scrape_keys.VOCABULARY,
    **{key: "in a rule, beside seriesQuery" for key in _RULE.fields if key != "seriesQuery"},
    "seriesQuery": "in a rule",
    **dict.fromkeys(_FILTER.fields, "in an entry of seriesFilters"),
    **dict.fromkeys(_RESOURCES.fields, "in resources"),
    **dict.fromkeys(_NAME.fields, "in name"),
    **dict.fromkeys(
        ("containerQuery", "nodeQuery", "containerLabel"), "in resourceRules.cpu or resourceRules.memory"
    ),
    **dict.fromkeys(_RESOURCE_RULES.fields, "in resourceRules"),
    "onWarnings": "in a rule, beside seriesQuery, or in resourceRules",
    **dict.fromkeys(_FILE.fields, "at the top of the file"),
}
"""Where each key of the format belongs, for keys under another parent."""


BOUNDS: Mapping[str, scrape_keys.KeyRange] = {
    "ttl": scrape_keys.KeyRange(0.01, 300),
    "maxAge": scrape_keys.KeyRange(0.1, 3600),
    "maxSampleAge": scrape_keys.KeyRange(0.1, 86_400),
}
"""Limits of our own durations. Kubernetes asks every 15 s, Prometheus looks back 5 min, jobs may be daily."""


def parse_rules(text: str, source: str) -> rules_config.Parsed:
    """Read a rules file. `source` names it in faults. Never raises: errors are in `fatal`."""
    try:
        root = reader.compose(text, source)
    except errors.InputError as error:
        return rules_config.Parsed(rules_config.RulesConfig(), fatal=error.faults)
    if root is None:
        return rules_config.Parsed(rules_config.RulesConfig())
    decoder = Decoder(source, VOCABULARY)
    top = decoder.decode(root, _FILE, "")
    sections = Sections(
        _entries(decoder, top.nodes.get("rules"), "rules"),
        _entries(decoder, top.nodes.get("externalRules"), "externalRules"),
        ("resourceRules", top.nodes["resourceRules"]) if "resourceRules" in top.nodes else None,
    )
    if decoder.faults:
        # Rules under a broken top are still read, so that one run shows every fault of the file.
        inner = build(sections, source)
        return rules_config.Parsed(
            rules_config.RulesConfig(), inner.faults, tuple(decoder.faults), inner.readable
        )
    return build(sections, source)


def _entries(decoder: Decoder, node: yaml.Node | None, path: str) -> list[tuple[str, yaml.Node]]:
    if node is None:
        return []
    if isinstance(node, yaml.SequenceNode):
        return [(reader.join(path, index), entry) for index, entry in enumerate(node.value)]
    expected = "expected a list of rules"
    if isinstance(node, yaml.MappingNode):
        expected += f"; a mapping of default, custom, external is the Helm chart's values: {_CONVERT}"
    decoder.fault(path, reader.shown(node), expected, reader.line_of(node))
    return []


def build(sections: Sections, source: str) -> rules_config.Parsed:
    """Read the entries of a document with a valid outer shape; a fault excludes only its entry."""
    faults: list[errors.Fault] = []
    broken: set[str] = set()

    def read(entry: tuple[str, yaml.Node], shape: Shape, convert: Callable[[Fields], _T]) -> _T:
        path, node = entry
        decoder = Decoder(source, VOCABULARY)
        value = convert(decoder.decode(node, shape, path))
        if decoder.faults:
            faults.extend(decoder.faults)
            broken.add(path)
        return value

    external_rule = functools.partial(_rule, external=True)
    readable = rules_config.RulesConfig(
        tuple(read(entry, _RULE, _rule) for entry in sections.rules),
        tuple(read(entry, _RULE, external_rule) for entry in sections.external_rules),
        read(sections.resource_rules, _RESOURCE_RULES, _resource_rules) if sections.resource_rules else None,
    )
    usable = rules_config.RulesConfig(
        tuple(rule for rule in readable.rules if rule.path not in broken),
        tuple(rule for rule in readable.external_rules if rule.path not in broken),
        None if sections.resource_rules and sections.resource_rules[0] in broken else readable.resource_rules,
    )
    return rules_config.Parsed(usable, tuple(faults), readable=readable)


def _rule(fields: Fields, *, external: bool = False) -> rules_config.RuleConfig:
    scrape = scrape_keys.read(fields.structs.get("scrape"), external=external)
    ttl = scrape_keys.read_duration(fields, "ttl", BOUNDS, None)
    max_age = scrape_keys.read_duration(fields, "maxAge", BOUNDS, None)
    if ttl is not None and max_age is not None and ttl > max_age:
        fields.refuse("ttl", f"expected at most maxAge, which is {reader.one_line(fields.text('maxAge'))}")
    return rules_config.RuleConfig(
        path=fields.path,
        source=fields.decoder.source,
        line=fields.line,
        series_query=fields.text("seriesQuery"),
        series_filters=tuple(_filter(entry) for entry in fields.lists.get("seriesFilters", ())),
        resources=_resources(fields.struct("resources")),
        name_matches=fields.struct("name").text("matches"),
        name_as=fields.struct("name").text("as"),
        metrics_query=fields.text("metricsQuery"),
        on_nan=_choice(fields, "onNaN", rules_config.OnNaN, None),
        on_warnings=_choice(fields, "onWarnings", rules_config.OnWarnings, rules_config.OnWarnings.FAIL),
        ttl=ttl,
        max_age=max_age,
        max_sample_age=scrape_keys.read_duration(fields, "maxSampleAge", BOUNDS, None),
        scrape=scrape,
        lines=fields.lines(),
    )


def _filter(fields: Fields) -> rules_config.SeriesFilter:
    entry = rules_config.SeriesFilter(fields.text("is"), fields.text("isNot"))
    if not fields.broken and bool(entry.is_) == bool(entry.is_not):
        value = "both is and isNot" if entry.is_ else "neither is nor isNot"
        fields.fault(value, "expected exactly one of is and isNot, not empty")
    return entry


def _resources(fields: Fields) -> rules_config.ResourcesConfig:
    overrides = []
    for label, entry in fields.maps.get("overrides", {}).items():
        override = rules_config.OverrideConfig(label, entry.text("group"), entry.text("resource"))
        if not entry.broken and not override.resource:
            place = reader.join(entry.path, "resource")
            fields.decoder.fault(
                place, "", "missing: expected the resource that the label names, such as pod", entry.line
            )
        overrides.append(override)
    return rules_config.ResourcesConfig(
        fields.text("template"), tuple(overrides), fields.text("namespaced") != "false"
    )


def _resource_rules(fields: Fields) -> rules_config.ResourceRulesConfig:
    window = 0.0
    if "window" in fields.scalars:
        try:
            window = timestamps.parse_prometheus_duration(fields.text("window"))
        except ValueError:
            expected = "expected a Prometheus duration such as 5m or 1h30m (units y w d h m s ms), or 0"
            fields.refuse("window", expected)
    return rules_config.ResourceRulesConfig(
        fields.path,
        _resource_rule(fields.struct("cpu")),
        _resource_rule(fields.struct("memory")),
        window,
        fields.decoder.source,
        fields.line,
        _choice(fields, "onWarnings", rules_config.OnWarnings, rules_config.OnWarnings.FAIL),
        fields.lines(),
    )


def _resource_rule(fields: Fields) -> rules_config.ResourceRuleConfig:
    return rules_config.ResourceRuleConfig(
        fields.text("containerQuery"),
        fields.text("nodeQuery"),
        _resources(fields.struct("resources")),
        fields.text("containerLabel"),
        _usage_scrape(fields.structs.get("scrape")),
    )


_LONGEST_OF_USAGE = {"interval": 5.0, "window": 30.0}
_WINDOW_INTERVALS_OF_USAGE = 4
"""The default of `window`: the error of a counter and its delay are both within what is wanted."""


def _usage_scrape(fields: Fields | None) -> rules_config.UsageScrape | None:
    """Return how pods are scraped for their own usage.

    What is older than some seconds is not faster than the usage of containers, and not compared with it.
    """
    scrape = scrape_keys.read(fields, intervals=_WINDOW_INTERVALS_OF_USAGE)
    if fields is None or scrape is None:
        return None
    for key, seconds in {"interval": scrape.access.interval, "window": scrape.window}.items():
        if seconds > _LONGEST_OF_USAGE[key]:
            fields.refuse(key, f"expected at most {_LONGEST_OF_USAGE[key]:g}s, for the usage of pods")
            return None
    container = fields.text("container")
    if container and not checks.is_label(container):
        fields.refuse("container", "expected the name of a container")
    return rules_config.UsageScrape(scrape, fields.text("query"), container)


def _choice(fields: Fields, key: str, choices: type[_Choice], default: _Default) -> _Choice | _Default:
    if key not in fields.scalars:
        return default
    try:
        return choices(fields.text(key))
    except ValueError:
        fields.refuse(key, f"expected {' or '.join(choice.value for choice in choices)}")
        return default


def merge(
    configs: Sequence[rules_config.RulesConfig],
) -> tuple[rules_config.RulesConfig, tuple[errors.Fault, ...]]:
    """Join the rules of several files in their order; those of a later file take precedence.

    `resourceRules` may be given once: the first is kept, and each further one is a fault that names the
    first.
    """
    given = [config.resource_rules for config in configs if config.resource_rules is not None]
    faults = []
    for other in given[1:]:
        expected = f"given already in {given[0].source}:{given[0].line}: expected in one file only"
        faults.append(errors.Fault(other.path, "", expected, other.source, other.line))
    joined = rules_config.RulesConfig(
        tuple(rule for config in configs for rule in config.rules),
        tuple(rule for config in configs for rule in config.external_rules),
        given[0] if given else None,
    )
    return joined, tuple(faults)
