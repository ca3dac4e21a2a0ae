"""Warnings: what loads and would still surprise its author. Each is a mistake met in public configurations.

A warning has a place, a value and a sentence, as a fault has; unlike a fault it stops nothing. Here: names,
labels, objects, and rules beside one another. `lint_query` has what is wrong with the PromQL itself, and
`saturation` gauges with a cap.
"""

import re
from collections.abc import Iterable, Iterator

from adapter.config.rules_config import fault_at
from adapter.errors import Fault, NamingError, TemplateError
from adapter.model.autoscaling.boost import METRIC
from adapter.model.go_text import quote
from adapter.model.objects.resources import APIResource
from adapter.model.visible import counted, listed
from adapter.rules.compile import Rule
from adapter.rules.matchers import show_series
from adapter.rules.naming import NAMESPACES, UNWRITABLE
from adapter.rules.registry import ROOT_SCOPED
from fastpath_tools.check import lint_query, saturation
from fastpath_tools.check.lint_query import TEMPLATE, Finding
from fastpath_tools.live.preview import RulePreview, selected_names

# From here on a rule's metrics are worth a word: every one is an entry of the discovery document for each
# kind of object.
MANY_METRICS = 1000

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))")

_SETS = re.compile(r"\[[^\]]*\]|\(\?[^):]*[:>)]")
"""Parts of a regular expression whose characters are not text that a name has to have."""
_OPTIONAL = re.compile(r"\||\)[?*{]")
_FOREIGN = re.compile(r"[^\w:\\^$.*+?()|{},](?![?*{])|(?<=\\)[-. /](?![?*{])")


def lint(previews: Iterable[RulePreview], scrape_interval: float) -> list[Fault]:
    """Return the warnings for rules in the order of the files; `scrape_interval` in seconds."""
    warnings: dict[Fault, None] = {}  # what is true for pods is often true for namespaces too
    makers: _Makers = {}
    previews = list(previews)
    for number, preview in enumerate(previews):
        findings = (
            *_templates(preview),
            *_names(preview),
            *_references(preview),
            *_series(preview),
            *_labels(preview),
            *lint_query.check(preview, scrape_interval),
            *saturation.check(preview, previews),
            *_collisions(preview, number, makers),
        )
        config = preview.config
        for path, value, sentence in findings:
            warnings[fault_at(config, f"{config.path}.{path}", value, sentence)] = None
    return list(warnings)


_Makers = dict[tuple[str, APIResource | None, str], tuple[int, str]]
"""Number and path of the last rule that makes a metric, by API, kind of object and metric."""


def _collisions(made: RulePreview, number: int, makers: _Makers) -> Iterator[Finding]:
    """Yield the metrics that an earlier rule of the same API makes too, for objects that both may find."""
    for metric in made.metrics:
        keys = [(made.api, example.resource, metric) for example in made.examples]
        if earlier := [makers[key] for key in keys if key in makers]:
            _, path = max(earlier)
            yield "name", metric, f"{path} defines the same metric; where both apply, the later rule is used"
        makers.update(dict.fromkeys(keys, (number, made.path)))


def _templates(made: RulePreview) -> Iterator[Finding]:
    """Yield templates in plain texts, and expressions that no metric name matches."""
    config = made.config
    required = {"name.matches": config.name_matches}
    required |= {f"seriesFilters[{index}].is": one.is_ for index, one in enumerate(config.series_filters)}
    texts = required | {"seriesQuery": config.series_query, "name.as": config.name_as}
    texts |= {f"seriesFilters[{index}].isNot": one.is_not for index, one in enumerate(config.series_filters)}
    for path, text in texts.items():
        if TEMPLATE.search(text):
            yield path, text, "this is no template: only metricsQuery and resources.template are"
        elif (
            path in required and not _OPTIONAL.search(text) and (sign := _FOREIGN.search(_SETS.sub("", text)))
        ):
            yield path, text, f"the name of a series has no {quote(sign[0])}, so this matches none"


def _names(made: RulePreview) -> Iterator[Finding]:
    rule, metrics = made.rule, {metric for metric in made.metrics if not TEMPLATE.search(metric)}
    if rule.namer.expansion and all(piece.group is None for piece in rule.namer.expansion):
        metrics.add(TEMPLATE.sub("x", "".join(piece.text for piece in rule.namer.expansion)))
    for metric in sorted(metrics):
        if not metric:
            yield "name.as", rule.config.name_as, "the metric name is empty, so no request finds it"
        if metric == METRIC:
            reason = "this name is reserved for the floors of boosted HPAs"
            yield "name.as", metric, f"{reason}: --scaler and --serve-floors serve those instead"
        if "/" in metric:
            yield "name.as", metric, "a name with a slash cannot be requested"
        if made.external and metric != metric.lower():
            reason = "autoscalers request external metrics in lower case"
            yield "name.as", metric, f"{reason} and never find a name with capitals"
    if len(metrics) >= MANY_METRICS:
        remedy = "seriesFilters or a narrower seriesQuery keep the list short"
        sentence = f"each is listed for every kind of object; {remedy}"
        yield "seriesQuery", f"{len(metrics)} metrics", sentence


def _references(made: RulePreview) -> Iterator[Finding]:
    """Yield the references of `name.as` to groups that `name.matches` does not have."""
    expression = made.rule.namer.matches
    for braced, bare in _REFERENCE.findall(made.rule.config.name_as.replace("$$", "")):
        name = braced or bare
        known = int(name) <= expression.groups if name.isdecimal() else name in expression.groupindex
        if known:
            continue
        number = re.match(r"[0-9]+(?=[A-Za-z_])", bare)
        advice = f": write ${{{number[0]}}} to end the name of the group" if number else ""
        written = f"${{{name}}}" if braced else f"${name}"
        yield "name.as", written, f"name.matches has no such group, so this is empty{advice}"


def _series(made: RulePreview) -> Iterator[Finding]:
    """Yield what the series that exist say, or the names that the rule selects where they were not read."""
    if made.known is None:
        selected = selected_names(made.config.series_query)
        reasons = [reason for name in selected if (reason := made.rule.namer.rejection(name))]
        if selected and len(reasons) == len(selected):
            if reasons[0] == UNWRITABLE:
                yield "seriesQuery", listed(selected), f"{UNWRITABLE}: such series are left out"
            else:
                sentence = f"it excludes {listed(selected)}, so the rule serves nothing"
                yield reasons[0].partition(" ")[0], reasons[0].partition(" ")[2], sentence
        return
    unwritable = [
        series.name for series in made.known if made.rule.namer.rejection(series.name) == UNWRITABLE
    ]
    if unwritable:
        number = counted(len(unwritable), "series name is", "series names are")
        sentence = (
            f"{number} left out, such as {show_series(unwritable[0])}: expected names that PromQL can write "
            "without quotes, of letters, digits, underscores and colons"
        )
        yield "seriesQuery", "", sentence
    if not made.known:
        yield "seriesQuery", "", "no series matches now, so the rule serves nothing"
    elif not made.series:
        if len(made.known) > len(unwritable):
            sentence = "no name of a series passes this and name.matches: see --why METRIC"
            yield "seriesFilters", "", sentence
    else:
        for label, resource in made.rule.converter.by_label.items():
            # of an external rule's labels only the one for namespaces is ever used
            used = resource.group_resource == NAMESPACES and made.rule.config.resources.namespaced
            if label not in made.labels and (used or not made.external):
                yield f"resources.overrides.{label}", "", "no series of this rule has the label"


def _labels(made: RulePreview) -> Iterator[Finding]:
    rule, resources = made.rule, made.rule.config.resources
    if not made.external and not resources.namespaced:
        yield "resources.namespaced", "false", "this affects externalRules only"
    if made.external:
        if resources.namespaced and not _names_namespaces(rule):
            sentence = "no label for namespaces, so every request fails"
            yield "resources", "", f"{sentence}: add an override for namespace, or namespaced: false"
    elif not rule.converter.by_label and rule.converter.template is None:
        reason = "neither overrides nor a template, so no series belongs to an object"
        yield "resources", "", f"{reason} and the metric is not listed"
    elif made.known is not None and made.series and not made.examples:  # nothing follows from no series
        yield "resources", "", "no label of the series names a kind of object, so the metric is not listed"
    elif not _names_namespaces(rule) and not all(
        resource.group_resource in ROOT_SCOPED for resource in rule.converter.by_label.values()
    ):
        sentence = "no label for namespaces, so namespaced objects cannot be requested"
        yield "resources.overrides", "", f"{sentence}: add an override for namespace"
    seen: dict[object, str] = {}
    for label, resource in rule.converter.by_label.items():
        earlier = seen.setdefault(resource.group_resource, label)
        if earlier != label:
            sentence = f"{earlier} names the same resource; queries use the label that comes last"
            yield f"resources.overrides.{label}", str(resource.group_resource), sentence


def _names_namespaces(rule: Rule) -> bool:
    try:
        rule.converter.label_for(NAMESPACES)
    except (NamingError, TemplateError):
        return False
    return True
