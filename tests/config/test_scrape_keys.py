"""The `scrape` key of a rule: what is refused. What it means is in `documents/scrape`."""

import pytest

from adapter.config.rules_config import EndpointSource, Parsed
from adapter.config.rules_file import parse_rules
from adapter.model.objects.label_selectors import parse_selector
from tests.support.answers import answers

EXTERNAL = "externalRules"


def parse(scrape: str, section: str) -> Parsed:
    return parse_rules(f"{section}:\n- seriesQuery: x\n  scrape: {scrape}\n", "f.yaml")


def refused(scrape: str, section: str = "rules") -> list[str]:
    """Return the faults without the place of the rule, which is left out."""
    parsed = parse(scrape, section)
    assert parsed.config.rules == parsed.config.external_rules == ()
    return [str(fault).removeprefix(f"f.yaml:3: {section}[0].scrape") for fault in parsed.faults]


@pytest.mark.parametrize(("scrape", "said"), answers("config/scrape_keys", "refused"))
def test_keys_that_are_refused(scrape: str, said: str) -> None:
    assert refused(scrape) == [said]


@pytest.mark.parametrize(("scrape", "said"), answers("config/scrape_keys", "refused in external rules"))
def test_keys_of_external_rules_that_are_refused(scrape: str, said: str) -> None:
    assert refused(scrape, EXTERNAL) == [said]


@pytest.mark.parametrize(("scrape", "said"), answers("config/scrape_keys", "no endpoints"))
def test_a_rule_about_pods_names_no_endpoints(scrape: str, said: str) -> None:
    assert refused(scrape) == [said]


def test_a_source_says_where_it_is() -> None:
    assert str(EndpointSource("a", "b")) == "Service a/b"
    selected = EndpointSource("a", "", parse_selector("app=b"))
    assert str(selected) == "pods of namespace a with app=b"
