import promql_parser as promql
import pytest

from adapter.rules import mergeable, parsing
from adapter.rules.mergeable import Separability
from adapter.rules.template import template
from tests.support.answers import answers


def analyse(text: str, object_label: str = "pod", namespace_label: str = "namespace") -> Separability:
    return mergeable.analyse(template.parse(text), object_label, namespace_label)


@pytest.mark.parametrize("refusal", answers("rules/mergeable", "refused"))
def test_refused(refusal: dict[str, str]) -> None:
    verdict = analyse(refusal["template"], refusal.get("object_label", "pod"))
    reason = refusal["reason"]
    assert verdict.reason.startswith(reason)
    assert verdict.reason == reason or reason.endswith(": ")
    assert verdict.joined == ""


@pytest.mark.parametrize("refusal", answers("rules/mergeable", "not joined"))
def test_not_joined(refusal: dict[str, str]) -> None:
    assert analyse(refusal["template"]) == Separability(join_reason=refusal["reason"])


@pytest.mark.parametrize(("text", "expected"), answers("rules/mergeable", "joined"))
def test_joined(text: str, expected: str) -> None:
    verdict = analyse(text.replace("@}", "<<.LabelMatchers>>}").replace(",@,", ",<<.LabelMatchers>>,"))
    slot = parsing.MATCHERS
    assert verdict == Separability(joined=expected.replace("@}", f"{slot}}}").replace(",@,", f",{slot},"))
    promql.parse(verdict.joined)


def test_the_verdict_is_about_one_kind_of_object() -> None:
    query = "sum(x{<<.LabelMatchers>>}) by (service)"
    assert not analyse(query, "service").reason
    assert analyse(query, "pod").reason == "sum by (service) does not name pod"


def test_sides_that_differ_do_no_harm_without_a_namespace() -> None:
    query = "sum by (node) (x{<<.LabelMatchers>>}) * on (node) group_left () y{<<.LabelMatchers>>}"
    assert analyse(query, "node", "") == Separability()


def test_a_matcher_on_the_namespace_label_is_no_matter_where_questions_have_none() -> None:
    query = 'sum by (node) (x{<<.LabelMatchers>>,namespace="kube-system"})'
    assert not analyse(query, "node", "").reason
