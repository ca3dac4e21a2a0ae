"""What is served of rules and series as data.

In `documents/rules` lines after `> ` are a file of rules, and those after `< ` series that are listed then: a
selector, and names with their labels, and how many there are. Below is what is left out and what is served.
The name `reserved` is Fastpath's own. `scripts/test tests/rules --update` writes what is served now.
"""

import itertools
import re
from pathlib import Path

from adapter.config import rules_file
from adapter.model import steps
from adapter.model.metrics import CustomMetricInfo, SeriesInfo
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from adapter.rules import registry
from adapter.rules.compile import Rule, Ruleset, compile_rules
from adapter.rules.registry import Registry, SeriesMemory
from adapter.rules.resource import NODES, PODS
from tests.support.scripts import Recorded

DOCUMENT = Path(__file__).parent / "documents" / "rules"
WIDGET = APIResource("example.com", "v1", "widgets", "widget", "Widget", False, frozenset(), True)
KINDS = Catalogue([*BUILTIN, WIDGET])


def series_of(words: list[str]) -> list[SeriesInfo]:
    found = [re.fullmatch(r"(\w+)\{(.*)\}(?:\*(\d+))?", word) for word in words]
    return [
        SeriesInfo(each[1], frozenset(filter(None, each[2].split(","))), int(each[3] or 1))
        for each in found
        if each is not None
    ]


def show_rule(rule: Rule) -> str:
    scraped = "not scraped"
    if rule.scraped is not None:
        pod, names = rule.scraped.pod, sorted(rule.scraped.series_names("x"))
        where = "endpoints" if pod is None else f"pods by {pod.pod} and {pod.namespace or 'no namespace'}"
        scraped = f"{where} scraped for {', '.join(names)}{' as a count' * rule.scraped.counts}"
    return f"{rule.path}: {scraped}{rule.named_series and f', names {rule.named_series}'}"


def show_rules(rules: Ruleset) -> list[str]:
    shown = [show_rule(rule) for rule in (*rules.custom, *rules.external)]
    shown += [f"usage {show_rule(rules.usage.rule)}"] if rules.usage is not None else []
    if rules.resource is not None:
        pairs = (rules.resource.pair(PODS), rules.resource.pair(NODES))
        paths = ", ".join(query.path for pair in pairs for query in pair)
        shown.append(f"resource rules over {rules.resource.config.window:g} s: {paths}")
    return [*shown, f"selectors: {list(rules.selectors())}"]


def show_key(key: CustomMetricInfo) -> str:
    return f"{key.resource}/{key.metric}{'' if key.namespaced else '@root'}"


def show_served(built: Registry) -> list[str]:
    custom = [
        f"{show_key(key)} is {each.series} of {each.rule.path}, {each.series_count} series"
        for key, each in built.custom.items()
    ]
    listed = " ".join(map(show_key, built.listed))
    external = [
        f"external {name} is {each.series} of {each.rule.path}" for name, each in built.external.items()
    ]
    refused = [f"{path} gives {name}, which is reserved" for path, name in built.refused]
    return [*custom, *([f"lists {listed}"] if listed else []), *external, *built.collisions, *refused]


def answer(lines: list[str]) -> list[str]:
    """Return what becomes of a file of rules and lists of series."""
    text = "".join(f"{line[2:]}\n" for line in lines if line.startswith("> "))
    parsed = rules_file.parse_rules(text, "rules.yaml")
    assert parsed.faults == parsed.fatal == ()
    rules, faults = compile_rules(parsed.config, KINDS)
    memory: SeriesMemory = {}
    for selector, *names in (line.split(" ")[1:] for line in lines if line.startswith("< ")):
        memory = steps.run(registry.remembering(memory, selector, series_of(names)))
    built = steps.run(registry.building(rules, memory, 1, frozenset({"reserved"})))
    return [*(f"fault {fault}" for fault in faults), *show_rules(rules), *show_served(built)]


def test_documents(recorded: Recorded) -> None:
    said: list[str] = []
    kept = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(("# ", "> ", "< "))]
    for is_title, lines in itertools.groupby(kept, lambda line: line.startswith("# ")):
        texts = list(lines)
        said += texts if is_title else [*texts, *answer(texts)]
    recorded(DOCUMENT, "".join(f"{line}\n" for line in said))
