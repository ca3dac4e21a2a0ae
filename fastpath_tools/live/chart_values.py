"""Values of the charts prometheus-adapter and fastpath: their section `rules`, as the rules file it becomes.

The result is what Helm would write into the ConfigMap: the chart's six default rules are added, a null
deletes a default, a section counts by the truth of Go's templates, mapping keys are sorted, booleans and
integers get their plain spelling, and a fraction stays as written. Faults carry the paths of the values file
(``rules.custom[2].name``). The other values are ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources

import yaml
from yaml.representer import SafeRepresenter

from adapter import errors
from adapter.config import rules_file
from adapter.config.rules_config import Parsed, RulesConfig
from adapter.config.rules_file import Sections
from adapter.config.yaml import reader

SECTIONS = ("default", "custom", "external", "resource", "existing")

_CHART_KEYS = """
affinity alerts automountServiceAccountToken boost certManager commonLabels compatibility crd
customAnnotations customLabels dashboards deploymentAnnotations dnsConfig dnsPolicy enabled env
extraArguments extraContainers extraManifests extraVolumeMounts extraVolumes fullnameOverride global
hostNetwork image
listenPort livenessProbe logLevel metricsRelistInterval nameOverride namespaceOverride networkPolicy
nodeSelector podAnnotations podDisruptionBudget podLabels podSecurityContext priorityClassName prometheus
psp rbac readinessProbe replicas resourceQuota resources revisionHistoryLimit runAsUser scaler
securityContext service serviceAccount serviceMonitor startupProbe strategy tls tolerations
topologySpreadConstraints
"""
CHART_KEYS = frozenset(_CHART_KEYS.split())
"""Top-level values of both charts other than `rules`, over the versions that are in use."""

_SUBCHARTS = ("prometheus-adapter", "fastpath")
"""The key of these values in a chart that depends on one of them."""

_CONFIG_KEYS = {"rules": "custom", "externalRules": "external", "resourceRules": "resource"}

_RULE_LIKE: Mapping[str, type[yaml.Node] | tuple[type[yaml.Node], ...]] = {
    "rules": (yaml.MappingNode, yaml.SequenceNode),
    "custom": yaml.SequenceNode,
    "external": yaml.SequenceNode,
    "externalRules": yaml.SequenceNode,
    "resource": yaml.MappingNode,
    "resourceRules": yaml.MappingNode,
}
"""Keys, with their types, that look like rules anywhere."""

_INT = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|[0-9][0-9_]*)")
_INT_TAG = "tag:yaml.org,2002:int"

_DEFAULTS = resources.files(__package__) / "default-rules.yaml"


def is_chart_values(text: str) -> bool:
    """Return whether a document is chart values and not a rules file; False for unreadable text.

    Values have `rules` as a mapping, or only keys of the `rules` section, or a key of the chart and none that
    only a rules file has. They may be nested under their key in a parent chart.
    """
    try:
        root = reader.compose(text, "")
    except errors.InputError:
        return False
    return root is not None and _locate(_as_helm_reads(root, "", "", [])) is not None


def rules_from_chart(text: str, source: str) -> Parsed:
    """Read the rules that the chart would write for these values. Never raises."""
    try:
        values = _Values(text, source)
    except errors.InputError as error:
        return Parsed(RulesConfig(), fatal=error.faults)
    parsed = rules_file.build(values.sections(), source)
    return replace(parsed, faults=(*values.faults, *parsed.faults))


def render_config(text: str, source: str = "") -> str:
    """Return the rules file that the chart would write for these values, "" if they are empty.

    Raises InputError if the values cannot be rendered; rules with faults inside are rendered as they are.
    """
    sections = _Values(text, source).sections()
    entries: list[tuple[yaml.Node, yaml.Node]] = []
    for key, rules in (("rules", sections.rules), ("externalRules", sections.external_rules)):
        if rules:
            items = [node for _, node in rules]
            entries.append((_node(key), yaml.SequenceNode("tag:yaml.org,2002:seq", items)))
    if sections.resource_rules:
        entries.append((_node("resourceRules"), sections.resource_rules[1]))
    if not entries:
        return ""
    root = yaml.MappingNode("tag:yaml.org,2002:map", entries)
    written: str = yaml.serialize(root, Dumper=yaml.SafeDumper, width=1_000_000, allow_unicode=True)
    return written


class _Values:
    """The rules section of one values file. Raises InputError if the chart would not render it."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.faults: list[errors.Fault] = []
        root = reader.compose(text, source)
        noted: list[errors.Fault] = []
        top = _as_helm_reads(root, "", source, noted) if root is not None else None
        located = _locate(top) if top is not None else None
        if located is None:
            expected = f"expected the chart's values: a mapping `rules` of {', '.join(SECTIONS)}"
            line = reader.line_of(top) if top else 0
            raise errors.InputError([errors.Fault("", "", expected, source, line)])
        self.path, parent, section = located
        if section is not None and not isinstance(section, yaml.MappingNode):
            expected = f"expected a mapping of {', '.join(SECTIONS)}: the chart fails otherwise"
            raise errors.InputError([self._fault(self.path, section, expected)])
        self.given = _entries(section) if section is not None else {}
        below = (f"{self.path}.", f"{self.path}[")
        self.faults += [
            fault for fault in noted if fault.path.startswith(below) or self.path in {"", fault.path}
        ]
        self._look_around(parent)
        self._check()

    def sections(self) -> Sections:
        """Return what the chart renders: default and custom rules, and the other rules if not empty."""
        resource = self.given.get("resource")
        resource_rules = None
        if resource is not None and _truth(resource):
            resource_rules = reader.join(self.path, "resource"), resource
        switch, place = self.given.get("default"), reader.join(self.path, "default")
        rules = yaml.safe_load(_DEFAULTS.read_bytes()) if switch is None or _truth(switch) else ()
        default = [(reader.join(place, index), _node(rule)) for index, rule in enumerate(rules)]
        return Sections([*default, *self._list("custom")], self._list("external"), resource_rules)

    def _list(self, key: str) -> list[tuple[str, yaml.Node]]:
        node = self.given.get(key)
        if not isinstance(node, yaml.SequenceNode):
            return []
        place = reader.join(self.path, key)
        return [(reader.join(place, index), entry) for index, entry in enumerate(node.value)]

    def _check(self) -> None:
        """Refuse what Helm or prometheus-adapter refuses; report what Helm silently ignores."""
        fatal = []
        for key, node in self.given.items():
            place = reader.join(self.path, key)
            if key not in SECTIONS:
                meant = _CONFIG_KEYS.get(key)
                advice = f"write {meant}" if meant else f"the section has {', '.join(SECTIONS)}"
                self.faults.append(self._fault(place, node, f"the chart does not read this key: {advice}"))
            elif key == "existing" and _truth(node):
                expected = (
                    "the chart uses the rules of this ConfigMap and nothing of this file: give its content "
                    "instead"
                )
                fatal.append(self._fault(place, node, expected))
            elif key in {"custom", "external"} and _truth(node) and not isinstance(node, yaml.SequenceNode):
                fatal.append(self._fault(place, node, "expected a list of rules"))
        if fatal:
            raise errors.InputError(fatal)

    def _look_around(self, parent: Mapping[str, yaml.Node]) -> None:
        """Report rules beside or below the wrong key, which Helm silently drops."""
        prefix = self.path.removesuffix("rules")
        places = [(prefix, parent)]
        below = parent.get("prometheus")
        if isinstance(below, yaml.MappingNode):
            places.append((f"{prefix}prometheus.", _entries(below)))
        for place, entries in places:
            for key, node in entries.items():
                wanted = _RULE_LIKE.get(key)
                if wanted and isinstance(node, wanted) and node is not parent.get("rules"):
                    section = key == "rules" and isinstance(node, yaml.MappingNode)
                    home = self.path if section else reader.join(self.path, _CONFIG_KEYS.get(key, key))
                    expected = f"the chart does not read this key here: write {home}, check the indentation"
                    self.faults.append(self._fault(place + key, node, expected))

    def _fault(self, path: str, node: yaml.Node, expected: str) -> errors.Fault:
        return errors.Fault(path, reader.shown(node), expected, self.source, reader.line_of(node))


def _locate(top: yaml.Node) -> tuple[str, Mapping[str, yaml.Node], yaml.Node | None] | None:
    """Return path, parent mapping and node of the rules section, None if the document is no chart values.

    The node is None if there are only default rules.
    """
    if not isinstance(top, yaml.MappingNode):
        return None
    given = _entries(top)
    for chart in _SUBCHARTS:
        inner = given.get(chart)
        if isinstance(inner, yaml.MappingNode) and "rules" not in given:
            below = _entries(inner)
            return f"{chart}.rules", below, below.get("rules")
    if isinstance(given.get("rules"), yaml.MappingNode):
        return "rules", given, given["rules"]
    if given and set(given) <= set(SECTIONS):
        return "", {}, top
    if given.keys() & CHART_KEYS and not given.keys() & {"externalRules", "resourceRules"}:
        rules = given.get("rules")
        return None if isinstance(rules, yaml.SequenceNode) else ("rules", given, rules)
    return None


def _entries(node: yaml.MappingNode) -> dict[str, yaml.Node]:
    return {str(key.value): value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _truth(node: yaml.Node) -> bool:
    """Return the truth of a value in Go's templates: false, 0, null and all empty values are false."""
    if not isinstance(node, yaml.ScalarNode):
        return bool(node.value)
    if node.tag == reader.TEXT:
        return bool(node.value)
    return node.tag != reader.NULL and node.value not in ("false", "0", "0.0")


def _as_helm_reads(node: yaml.Node, path: str, source: str, noted: list[errors.Fault]) -> yaml.Node:
    """Return a copy with merge keys applied, keys sorted and scalars respelled.

    Faults that Helm hides or refuses are added to `noted`. A merge key is applied in its position and
    replaces whole values, unlike in the strict decoding of a rules file.
    """
    if isinstance(node, yaml.SequenceNode):
        copies = [
            _as_helm_reads(entry, reader.join(path, index), source, noted)
            for index, entry in enumerate(node.value)
        ]
        return yaml.SequenceNode(node.tag, copies, node.start_mark, node.end_mark)
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        _collect(node, path, source, noted, entries)
        pairs = [entries[key] for key in sorted(entries)]
        return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)
    return _respelled(node)


def _collect(
    node: yaml.MappingNode,
    path: str,
    source: str,
    noted: list[errors.Fault],
    entries: dict[str, tuple[yaml.Node, yaml.Node]],
) -> None:
    own: set[str] = set()
    for key, value in node.value:
        if reader.is_merge(key):
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for mapping in reversed(merged):
                if isinstance(mapping, yaml.MappingNode):
                    _collect(mapping, path, source, noted, entries)
                else:
                    place, shown = reader.join(path, "<<"), reader.shown(mapping)
                    expected = "expected a mapping or a list of mappings to merge"
                    noted.append(errors.Fault(place, shown, expected, source, reader.line_of(mapping)))
            continue
        spelled = _respelled(key)
        text = str(spelled.value)
        place = reader.join(path, text)
        if text in own:
            expected = "this key is given twice; Helm would silently use the last"
            noted.append(errors.Fault(place, reader.shown(value), expected, source, reader.line_of(key)))
        own.add(text)
        entries[text] = spelled, _as_helm_reads(value, place, source, noted)


def _respelled(node: yaml.Node) -> yaml.Node:
    """Return a scalar in the spelling of JSON; other nodes (a list as a key) as they are."""
    if not isinstance(node, yaml.ScalarNode):
        return node
    tag, text = node.tag, str(node.value)
    truth = reader.boolean_of(node)
    if truth is not None:
        tag, text = reader.BOOL, str(truth).lower()
    elif tag == reader.NULL:
        text = "null"
    elif tag == _INT_TAG and _INT.fullmatch(text):
        text = _decimal(text)
    elif tag == reader.BINARY:
        tag, text = reader.TEXT, reader.text_of(node) or text
    return yaml.ScalarNode(tag, text, node.start_mark, node.end_mark, style=node.style)


def _decimal(text: str) -> str:
    """Return an integer of YAML 1.1 in decimal; a leading zero means octal. Very long ones stay."""
    digits = text.replace("_", "").lstrip("+")
    if len(digits) > 19:
        return text
    body = digits.lstrip("-")
    octal = len(body) > 1 and body[0] == "0" and body[1].isdigit()
    try:
        number = int(body, 8 if octal else 0)
    except ValueError:  # 09, or a prefix without digits: text for Helm
        return text
    return str(-number if digits.startswith("-") else number)


def _node(value: object) -> yaml.Node:
    # a representer knows what it has made a node of before, and would make an alias of that
    return SafeRepresenter(default_flow_style=False, sort_keys=False).represent_data(value)
