"""What templates render to.

Every output below is what Go's ``text/template`` prints for the same template and variables.
"""

import pytest

from adapter import errors
from adapter.rules.template import template
from tests.support.answers import answers

VARIABLES: dict[str, template.Value] = {
    "Series": "http_requests_total",
    "LabelMatchers": 'namespace="web",pod=~"a|b"',
    "LabelValuesByName": {"pod": "a|b", "namespace": "web", "empty": ""},
    "GroupBy": "pod,container",
    "GroupBySlice": ["pod", "container"],
}


@pytest.mark.parametrize(("text", "output"), answers("template/template_evaluation", "rendered"))
def test_render(text: str, output: str) -> None:
    assert template.parse(text).render(VARIABLES) == output


@pytest.mark.parametrize(("text", "sentence"), answers("template/template_evaluation", "refused"))
def test_what_cannot_be_rendered_says_where_and_what(text: str, sentence: str) -> None:
    parsed = template.parse(text)
    with pytest.raises(errors.TemplateError) as caught:
        parsed.render(VARIABLES)
    assert str(caught.value).startswith(sentence.removesuffix("..."))


def test_and_and_or_leave_the_rest_unevaluated() -> None:
    assert template.parse("<<and `` (index .GroupBySlice 9)>>").render(VARIABLES) == ""
    assert template.parse("<<or `x` (index .GroupBySlice 9)>>").render(VARIABLES) == "x"
    with pytest.raises(errors.TemplateError):
        template.parse("<<and `x` (index .GroupBySlice 9)>>").render(VARIABLES)
