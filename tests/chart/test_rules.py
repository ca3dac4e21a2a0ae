"""Rules as values of the chart: its ConfigMap holds the rules of the file, and asks the same queries.

Expected is what `fastpath check` reads from the values themselves. Files that people have published are other
people's and not part of this repository.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.config import rules_file
from adapter.config.rules_config import Parsed
from fastpath_tools.live import chart_values as helm_values
from tests.rules.test_public_rules import DEFAULTS, FOLDER
from tests.support import charts
from tests.support.rendered import Objects

CASES_OF_CHECK = Path(__file__).parents[1] / "golden" / "check"

KEYS = {"custom": "rules", "external": "externalRules", "resource": "resourceRules"}
"""Sections of the values, and the keys of a rules file that they become."""

Values = dict[str, Any]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


def published() -> Sequence[Path]:
    """Return the public configurations, none where they are not present."""
    return sorted(FOLDER.glob("*.yaml"))


WHOLE_FILES = ("chart-values", "common-mistakes", "faulty-files", "rules-files")
"""The cases with files of several rules, as people have them."""
NO_RULES = {"manifest", "faults-quotes", "empty"}
"""Their files that are no YAML, or no rules file."""


def own() -> Sequence[Path]:
    """Return the rules of this repository: those of transcripts, and the examples of the documentation."""
    examples = Path(__file__).parents[2] / "docs" / "examples"
    cases = (path for case in WHOLE_FILES for path in (CASES_OF_CHECK / case).glob("*.yaml"))
    files = (*cases, *examples.glob("*.yaml"), *examples.glob("packs/*/rules.yaml"))
    return sorted(path for path in files if path.stem not in NO_RULES)


def sections_of(path: Path) -> Values:
    """Return the section `rules` of chart values with the rules of a file."""
    document = charts.read_values(path.read_text())
    document = document.get("prometheus-adapter", document)
    if helm_values.is_chart_values(yaml.safe_dump(document)):
        return dict(document["rules"])
    return {
        "default": False,
        **{section: document[key] for section, key in KEYS.items() if document.get(key)},
    }


def config_map(values: Values) -> str:
    """Return the rules file in the chart's ConfigMap, "" where it has none."""
    return rules_in(charts.render(values))


def rules_in(objects: Objects) -> str:
    """Return the rules file of the ConfigMap that the pods mount."""
    mounted = [volume["configMap"]["name"] for volume in objects.pod["volumes"] if "configMap" in volume]
    (text,) = objects.one("ConfigMap", mounted[0])["data"].values()
    return str(text)


def parse(text: str) -> Parsed:
    """Read a rules file whose rules do not say where they come from."""
    return _comparable(rules_file.parse_rules(text, ""))


def expected(values: Values) -> Parsed:
    """Read the rules of values as `fastpath check` does."""
    return _comparable(helm_values.rules_from_chart(yaml.safe_dump(values, width=1_000_000), ""))


def _comparable(parsed: Parsed) -> Parsed:
    return replace(parsed, config=charts.without_places(parsed.config))


CASES = [
    pytest.param(path, default, id=f"{path.parent.name}/{path.stem}-{default}")
    for path in (*published(), *own())
    for default in (False, True)
]


@pytest.mark.parametrize(("path", "default"), CASES)
def test_the_config_map_has_the_rules_of_the_file(path: Path, default: bool) -> None:  # noqa: FBT001
    sections = sections_of(path)
    values = {"rules": sections | {"default": default}}
    rendered, wanted = parse(config_map(values)), expected(values)
    assert rendered.fatal == wanted.fatal == ()
    assert rendered.config == wanted.config
    assert len(rendered.config.rules) >= DEFAULTS * default
    assert len(rendered.faults) == len(wanted.faults)


SCRAPE: Values = {"port": "metrics"}


@pytest.mark.parametrize(
    ("resource", "serves"),
    [
        ({"cpu": {"scrape": SCRAPE}, "memory": None}, False),
        ({"cpu": {"scrape": SCRAPE}, "memory": {"nodeQuery": "up"}}, True),
        ({"cpu": {"containerLabel": "container"}}, True),
        ({}, False),
    ],
)
def test_usages_that_are_only_scraped_register_no_api(resource: Values, *, serves: bool) -> None:
    objects = charts.render({"rules": {"default": True, "resource": resource}})
    registered = {each["spec"]["group"] for each in objects.all("APIService")}

    assert registered == {"custom.metrics.k8s.io"} | ({"metrics.k8s.io"} if serves else set())
    parsed = parse(rules_in(objects))
    assert parsed.faults == ()
    assert parsed.config.serves_usages == serves


ODD: Mapping[str, str] = {
    "a literal block": """
custom:
- seriesQuery: |
    http_requests_total{
      namespace!="",
      pod!=""
    }
  resources: {template: "<<.Resource>>"}
  metricsQuery: |-
    sum(
      rate(<<.Series>>{<<.LabelMatchers>>}[2m])
    ) by (<<.GroupBy>>)
""",
    "a folded block with blank lines and its last newlines kept": """
custom:
- seriesQuery: >+
    load{namespace!="",

    pod!=""}


  resources: {template: "<<.Resource>>"}
  metricsQuery: >-
    sum(<<.Series>>{<<.LabelMatchers>>})
    by (<<.GroupBy>>)
""",
    "a block that begins with spaces": """
custom:
- seriesQuery: load{namespace!=""}
  resources: {template: "<<.Resource>>"}
  metricsQuery: |2
      sum(<<.Series>>{<<.LabelMatchers>>})
       by (<<.GroupBy>>)
""",
    "an empty line of spaces within a block": (
        'custom:\n- seriesQuery: load{namespace!=""}\n  metricsQuery: |\n    sum(<<.Series>>\n       \n'
        '    {<<.LabelMatchers>>}) by (<<.GroupBy>>)\n  resources: {template: "<<.Resource>>"}\n'
    ),
    "anchors, aliases and merge keys": """
custom:
- &first
  seriesQuery: load{namespace!="",pod!=""}
  resources: &resources
    overrides:
      namespace: {resource: namespace}
      pod: &pod {resource: pod}
  metricsQuery: &query sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- <<: *first
  name: {as: second}
- seriesQuery: other{namespace!=""}
  resources:
    overrides:
      <<: {exported_pod: *pod}
      namespace: {resource: namespace}
  metricsQuery: *query
""",
    "braces of Helm's templates and of Prometheus' within a query": """
custom:
- seriesQuery: load{namespace!="",pod!=""}
  resources: {template: "<<.Resource>>"}
  metricsQuery: label_replace(<<.Series>>{<<.LabelMatchers>>}, "a", "{{ .Values.x }}", "", "{{-(.*)-}}")
- seriesQuery: '{{'
  metricsQuery: '{{ fail "no" }}{{/* not a comment */}}'
""",
    "two kinds of template in one query": """
custom:
- seriesQuery: load{namespace!=""}
  resources: {template: "<<.Resource>>"}
  metricsQuery: '<<with .GroupBy>>x{<<range $k,$v := .LabelValuesByName>><<$k>>="<<$v>>"<<end>>}<<end>>'
""",
    "quotes, backslashes and regular expressions": r"""
custom:
- seriesQuery: '{__name__=~"^http_\\w+_(total|sum)$",path=~".*\\.(css|js)$",q!~''a"b''}'
  seriesFilters: [{is: '^a\d+$'}, {isNot: "\\.\"x\""}]
  resources: {template: 'kube_<<.Group>>_<<.Resource>>'}
  name: {matches: '^(.*)_(\w+)$', as: '${1}_per_$2_$$'}
  metricsQuery: "sum(rate(<<.Series>>{<<.LabelMatchers>>,path=~\"/a\\\\.b\\n\"}[1m])) by (<<.GroupBy>>)"
""",
    "numbers and booleans as text": """
custom:
- seriesQuery: "1e3"
  resources: {overrides: {"1": {resource: "namespace"}, "0x10": {resource: pod}, "true": {resource: node}}}
  name: {matches: "on", as: "yes"}
  metricsQuery: "0o17"
- seriesQuery: "2024-01-01"
  name: {as: "~"}
  metricsQuery: "null"
- seriesQuery: "12:30:45"
  name: {as: "=", matches: "010"}
  metricsQuery: ".5"
""",
    "numbers and booleans that are not text": """
custom:
- seriesQuery: 0.5
  metricsQuery: -1
- seriesQuery: true
  name: {as: 95}
- seriesQuery: 010
  metricsQuery: 12345678
""",
    "keys that YAML 1.1 reads as booleans": """
custom:
- seriesQuery: load{namespace!=""}
  resources:
    overrides:
      y: {resource: pod}
      n: {resource: namespace}
      on: {resource: node}
      "off": {resource: service}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
""",
    "durations and numbers of extensions": """
custom:
- seriesQuery: load{namespace!="",pod!=""}
  resources: {template: "<<.Resource>>"}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  ttl: 1m30s
  maxAge: 5m
resource:
  cpu:
    containerQuery: sum by (<<.GroupBy>>) (rate(a{<<.LabelMatchers>>}[3m]))
    nodeQuery: sum by (<<.GroupBy>>) (rate(a{<<.LabelMatchers>>,id="/"}[3m]))
    resources: {overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}}
    containerLabel: container
  memory:
    containerQuery: sum by (<<.GroupBy>>) (b{<<.LabelMatchers>>})
    nodeQuery: sum by (<<.GroupBy>>) (b{<<.LabelMatchers>>,id="/"})
    resources: {overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}}
    containerLabel: container
  window: 1m30s
""",
    "letters of other alphabets, symbols and unusual spaces": r"""
custom:
- seriesQuery: 'Geschäft_total{namespace!="",日本="🚀"}'
  resources: {template: "<<.Resource>>"}
  metricsQuery: "sum(<<.Series>>{<<.LabelMatchers>>,a=\"\u00a0\u3000\ufeff\t\U0001F680\"}) by (<<.GroupBy>>)"
""",
    "a query of 20,000 characters": (
        "custom:\n- seriesQuery: 'load{namespace!=\"\"}'\n  resources: {template: '<<.Resource>>'}\n"
        "  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,a=~\""
        + "|".join(f"pod-{n}" for n in range(2200))
        + '"})'
        " by (<<.GroupBy>>)'\n"
    ),
    "comments, and what looks like one": """
# all
custom: # the rules
- seriesQuery: load{namespace!=""} # not part of it
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,a="x #y"}) by (<<.GroupBy>>)'
""",
    "flow style and JSON": """
{"custom": [{"seriesQuery": "load{namespace!=\\"\\"}", "resources": {"template": "<<.Resource>>"},
 "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"}], "external": []}
""",
    "external rules of any namespace": """
external:
- seriesQuery: '{__name__=~"^queue_.*",name!=""}'
  resources: {namespaced: false}
  name: {matches: "", as: depth}
  metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (name)
- seriesQuery: probe_success
  resources: {overrides: {namespace: {resource: namespace}}, namespaced: false}
  metricsQuery: |
    max_over_time(<<.Series>>{<<.LabelMatchers>>}[5m])
""",
    "empty sections": "custom: []\nexternal: []\nresource: {}\n",
    "null sections": "custom:\nexternal: ~\nresource: null\n",
    "empty sections of the other type": "custom: {}\nexternal: {}\nresource: []\n",
    "unknown keys, which the pods report": """
custom:
- seriesquery: load
  seriesQuery: load{namespace!=""}
  resources: {template: "<<.Resource>>", overrides: {}}
  comment: {"a": [1, 2.5, -0.0, true, null, "x"]}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
""",
    "an indented list with tabs after the colon": (
        "custom:\n    -   seriesQuery:\tl{namespace!=''}\n        resources:\t{template: '<<.Resource>>'}\n"
        "        metricsQuery:\t'<<.Series>>{<<.LabelMatchers>>}'\n"
    ),
    "carriage returns": (
        'custom:\r\n- seriesQuery: load{namespace!=""}\r\n  metricsQuery: |\r\n    sum(<<.Series>>\r\n'
        "    {<<.LabelMatchers>>})\r\n  resources: {template: '<<.Resource>>'}\r\n"
    ),
}


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_yaml(text: str, default: bool) -> None:  # noqa: FBT001
    """The values of a file arrive in the ConfigMap as Helm read them."""
    sections = charts.read_values(text) | {"default": default}
    values = {"rules": sections}
    written = config_map(values)
    assert loaded(written, default=default) == {
        key: sections[section] for section, key in KEYS.items() if sections.get(section)
    }
    rendered, wanted = parse(written), expected(values)
    assert rendered.fatal == wanted.fatal == ()
    assert rendered.config == wanted.config


def loaded(text: str, *, default: bool = False) -> Values:
    """Return the document of a rules file as Helm reads YAML, without the default rules."""
    document = charts.read_values(text)
    if default:
        del document["rules"][:DEFAULTS]
        if not document["rules"]:
            del document["rules"]
    return document


_PIECES = r"""
{{ }} {{- -}} {{/* << >> <<.Series>> {<<.LabelMatchers>>} # | > % & * ! ? @ ` ' " \ \n ~ null true no on
0x1f 0o7 1e3 .5
1_000 12:30 2024-01-01 = [5m] {} [] --- ... é 🚀 a
"""
PIECES = [
    *_PIECES.split(),
    *("{{ .Values.rules }}", "\n", "\n\n", " ", "  ", "\t", "\r", " #", ": ", "- ", "\u00a0", "\ufeff"),
]
"""What YAML or a template gives a meaning to.

Control characters and Unicode's line breaks are left out: Helm's toYaml does not keep them.
"""

TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufffe\uffff"),
        max_size=20,
    ),
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"seriesQuery": TEXTS, "metricsQuery": TEXTS},
            optional={
                "name": st.fixed_dictionaries({"matches": TEXTS, "as": TEXTS}),
                "resources": st.fixed_dictionaries(
                    {
                        "overrides": st.dictionaries(
                            TEXTS, st.fixed_dictionaries({"resource": TEXTS}), max_size=2
                        )
                    }
                ),
            },
        ),
        min_size=1,
        max_size=2,
    ),
    st.booleans(),
)
def test_every_text_arrives_unchanged(rules: list[Values], default: bool) -> None:  # noqa: FBT001
    values = {"rules": {"default": default, "custom": rules, "external": rules}}
    assert loaded(config_map(values), default=default) == {"rules": rules, "externalRules": rules}
