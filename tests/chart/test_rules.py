"""Rules as values of the chart: its ConfigMap holds the rules of the file, and asks the same queries.

Expected is what `fastpath check` reads from the values themselves. Files that people have published are other
people's and not part of this repository.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.config import rules_file
from adapter.config.rules_config import Parsed
from fastpath_tools.live import chart_values as helm_values
from tests.chart import charts
from tests.rules.test_public_rules import DEFAULTS, FOLDER

CASES_OF_CHECK = Path(__file__).parents[1] / "golden" / "check"

KEYS = {"custom": "rules", "external": "externalRules", "resource": "resourceRules"}
"""Sections of the values, and the keys of a rules file that they become."""

Values = dict[str, Any]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


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
    """Return the rules file of the ConfigMap that the pods mount."""
    objects = charts.render(values)
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


@pytest.mark.parametrize(
    "path", [*sorted(FOLDER.glob("*.yaml")), *own()], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_the_config_map_has_the_rules_of_the_file_after_the_default_ones(path: Path) -> None:
    values = {"rules": sections_of(path) | {"default": True}}
    rendered, wanted = parse(config_map(values)), expected(values)
    assert rendered.fatal == wanted.fatal == ()
    assert rendered.config == wanted.config
    assert len(rendered.config.rules) >= DEFAULTS
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
    values = {"rules": {"default": True, "resource": resource}}
    registered = {each["spec"]["group"] for each in charts.render(values).all("APIService")}
    assert registered == {"custom.metrics.k8s.io"} | ({"metrics.k8s.io"} if serves else set())
    parsed = parse(config_map(values))
    assert parsed.faults == ()
    assert parsed.config.serves_usages == serves


ODD = {
    path.stem: path.read_bytes().decode() for path in sorted((Path(__file__).parent / "odd").glob("*.yaml"))
}
LONG = """
custom:
- seriesQuery: 'load{namespace!=""}'
  resources: {template: '<<.Resource>>'}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,a=~"PODS"}) by (<<.GroupBy>>)'
""".replace("PODS", "|".join(f"pod-{number}" for number in range(2200)))


@pytest.mark.parametrize("text", [*ODD.values(), LONG], ids=[*ODD, "a query of 20,000 characters"])
def test_odd_yaml(text: str) -> None:
    """The values of a file arrive in the ConfigMap as Helm read them."""
    sections = charts.read_values(text) | {"default": False}
    values = {"rules": sections}
    written = config_map(values)
    assert loaded(written) == {
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


@settings(max_examples=25)
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
