import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.rules.template import template
from tests.support.answers import answers

VARIABLES: dict[str, template.Value] = {
    "Series": "http_requests_total",
    "LabelMatchers": 'namespace="web",pod="a"',
    "LabelValuesByName": {"namespace": "web", "pod": "a"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod"],
}


@pytest.mark.parametrize(("text", "output"), answers("template/template", "plain"))
def test_plain_templates(text: str, output: str) -> None:
    parsed = template.parse(text)
    assert parsed.is_plain
    assert parsed.text == text
    assert parsed.render(VARIABLES) == output


@pytest.mark.parametrize("text", answers("template/template", "not plain"))
def test_everything_else_is_not_plain(text: str) -> None:
    assert not template.parse(text).is_plain


@given(
    st.lists(
        st.one_of(
            st.sampled_from(sorted(VARIABLES)), st.text(alphabet="ab {}()=\n").map(lambda text: f" {text}")
        )
    )
)
def test_the_plain_path_renders_what_the_evaluator_does(parts: list[str]) -> None:
    text = "".join(f"<<.{part}>>" if part in VARIABLES else part for part in parts)
    plain = template.parse(text)
    assert plain.is_plain
    evaluated = template.parse(f"{text}<<if false>><<end>>")
    assert not evaluated.is_plain
    assert plain.render(VARIABLES) == evaluated.render(VARIABLES)


def test_an_unknown_variable_fails_when_rendered() -> None:
    parsed = template.parse("a\n<<.Serie>>")
    with pytest.raises(errors.TemplateError) as caught:
        parsed.render(VARIABLES)
    assert str(caught.value) == (
        "2:3: unknown variable .Serie, expected one of .Series, .LabelMatchers, .LabelValuesByName, "
        ".GroupBy, .GroupBySlice"
    )


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        pytest.param("text", (), id="none"),
        pytest.param(
            "<<.Series>><<.GroupBy>><<.Series>>", ("Series", "GroupBy"), id="order of first use, once"
        ),
        pytest.param("<<.LabelValuesByName.pod>>", ("LabelValuesByName",), id="only the first of a chain"),
        pytest.param("<<$.A>><<with $x := .B>><<$x.C>><<end>><<(.D).E>>", ("A", "B", "D"), id="operands"),
        pytest.param("<<print .A (print .B | len) | index .C>>", ("A", "B", "C"), id="arguments"),
        pytest.param(
            "<<if .A>><<.B>><<else if .C>><<.D>><<else>><<.E>><<end>>", ("A", "B", "C", "D", "E"), id="if"
        ),
        pytest.param("<<with .A>><<.b>><<$.C>><<else>><<.D>><<end>>", ("A", "C", "D"), id="with"),
        pytest.param(
            "<<range .A>><<.b>><<if .c>><<$.D>><<end>><<else>><<.E>><<end>>", ("A", "D", "E"), id="range"
        ),
        pytest.param("<<.>>", (), id="the variables as a whole"),
    ],
)
def test_fields(text: str, fields: tuple[str, ...]) -> None:
    assert template.parse(text).fields == fields


# --- label templates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "group", "resource", "label"), answers("template/template", "label of a resource")
)
def test_label_of_a_resource(text: str, group: str, resource: str, label: str) -> None:
    assert template.LabelTemplate(text).render(group, resource) == label


@pytest.mark.parametrize(("text", "pattern"), answers("template/template", "pattern of labels"))
def test_pattern_of_labels(text: str, pattern: str) -> None:
    assert template.LabelTemplate(text).pattern() == pattern


@pytest.mark.parametrize(
    ("label", "groups"), answers("template/template", "the_pattern_recognizes_labels_lazily")
)
def test_the_pattern_recognizes_labels_lazily(label: str, groups: dict[str, str] | None) -> None:
    match = re2.compile(template.LabelTemplate("kube_<<.Group>>_<<.Resource>>").pattern()).search(label)
    assert (match.groupdict() if match else None) == groups


def test_a_label_template_that_renders_to_nothing() -> None:
    labels = template.LabelTemplate("<<if false>>x<<end>>")
    sentence = 'empty label produced by label template "<<if false>>x<<end>>"'
    with pytest.raises(errors.TemplateError) as caught:
        labels.pattern()
    assert str(caught.value) == sentence
    with pytest.raises(errors.TemplateError) as caught:
        labels.render("", "pod")
    assert str(caught.value) == sentence


def test_a_label_template_with_other_variables_fails() -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.LabelTemplate("<<.Name>>").pattern()
    assert str(caught.value) == "1:3: unknown variable .Name, expected one of .Group, .Resource"


def test_a_label_template_must_parse() -> None:
    with pytest.raises(errors.TemplateError, match=r"^1:3: unknown function"):
        template.LabelTemplate("<<Resource>>")
