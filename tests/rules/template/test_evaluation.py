"""What templates render to.

Every output below is what Go's ``text/template`` prints for the same template and variables.
"""

import pytest

from adapter import errors
from adapter.rules.template import template

VARIABLES: dict[str, template.Value] = {
    "Series": "http_requests_total",
    "LabelMatchers": 'namespace="web",pod=~"a|b"',
    "LabelValuesByName": {"pod": "a|b", "namespace": "web", "empty": ""},
    "GroupBy": "pod,container",
    "GroupBySlice": ["pod", "container"],
}

RENDERED = [
    # text, comments, trimming
    ("", ""),
    ("plain text", "plain text"),
    ("a < b > c", "a < b > c"),
    ("a\n<<- /* gone */ ->>\n b", "ab"),
    ("a <</* stays */>> b", "a  b"),
    ("a <<- /* left */>> b", "a b"),
    ("a <</* right */ ->> b", "a b"),
    ("a <<- .Series ->> \t\r\n b", "ahttp_requests_totalb"),
    ("a <<-1>> b", "a -1 b"),
    ("<<.Series>><<- ` ` ->> x", "http_requests_total x"),
    (" <<- `` ->> ", ""),
    # variables of the template
    ("<<.Series>>{<<.LabelMatchers>>}", 'http_requests_total{namespace="web",pod=~"a|b"}'),
    ("by (<<.GroupBy>>)", "by (pod,container)"),
    ("<< $.Series >>", "http_requests_total"),
    ("<<(.).Series>>", "http_requests_total"),
    ("<<.LabelValuesByName.pod>>", "a|b"),
    ("<<(.LabelValuesByName).pod>>", "a|b"),
    ("<<$.LabelValuesByName.pod>>", "a|b"),
    # printing
    ("<<.LabelValuesByName>>", "map[empty: namespace:web pod:a|b]"),
    ("<<.GroupBySlice>>", "[pod container]"),
    ("<<.LabelValuesByName.missing>>", "<no value>"),
    ("<<.LabelValuesByName.missing.deeper>>", "<no value>"),
    ("<<(.LabelValuesByName.missing).deeper>>", "<no value>"),
    (
        "<<.>>",
        (
            '{http_requests_total namespace="web",pod=~"a|b" map[empty: namespace:web pod:a|b] pod,container '
            "[pod container]}"
        ),
    ),
    ("<<true>> <<false>> <<1>> <<`r`>>", "true false 1 r"),
    ("<<and nil 1>>", "<no value>"),
    ("<<print nil>>", "<nil>"),
    # variables
    ("<<with $x := .Series>><<$x>><<end>>", "http_requests_total"),
    ("<<with $x:=.Series>><<$x>><<end>>", "http_requests_total"),
    ("<<with $x := .LabelValuesByName>><<$x.pod>><<end>>", "a|b"),
    ("<<with $x := 1>><<with $x := 2>><<$x>><<end>><<$x>><<end>>", "21"),
    ("<<with $x := 1>><<with $x := $x>><<$x>><<end>><<end>>", "1"),
    ("<<with $x := 0>>x<<else>><<$x>><<end>>", "0"),
    ("<<range $x := .LabelValuesByName.missing>>x<<else>><<$x>><<end>>", "<no value>"),
    ("<<range $x, $x := .GroupBySlice>><<$x>> <<end>>", "pod container "),
    # pipelines
    ("<<.Series | printf `%q`>>", '"http_requests_total"'),
    ("<<.Series | len | printf `%d-%s` 7>>", "7-%!s(int=19)"),
    ("<<.Series|>>", "http_requests_total"),
    ("<<print (len .Series) (index .GroupBySlice 1)>>", "19container"),
    ("<<(((.Series)))>>", "http_requests_total"),
    ("<<print print print>>", ""),
    ("<<(print `a`) | len>>", "1"),
    # if
    ("<<if .Series>>yes<<end>>", "yes"),
    ("<<if .LabelValuesByName.missing>>yes<<end>>", ""),
    ("<<if .LabelValuesByName.empty>>yes<<else>>no<<end>>", "no"),
    ("<<if eq .Series `x`>>1<<else if .GroupBy>>2<<else>>3<<end>>", "2"),
    ("<<if .>>struct<<end>>", "struct"),
    ("<<if not (index .LabelValuesByName `pod`)>>no<<end>>", ""),
    ("<<if 0>>1<<else if len ``>>2<<else if false>>3<<else if ``>>4<<else if 1>>5<<end>>", "5"),
    # with
    ("<<with .LabelValuesByName>><<.pod>> <<$.GroupBy>><<end>>", "a|b pod,container"),
    ("<<with .LabelValuesByName.missing>>x<<else>><<.Series>><<end>>", "http_requests_total"),
    # range
    ("<<range .GroupBySlice>>[<<.>>]<<end>>", "[pod][container]"),
    ("<<range .LabelValuesByName>>[<<.>>]<<end>>", "[][web][a|b]"),
    ("<<range $i, $g := .GroupBySlice>><<if $i>>,<<end>><<$g>><<end>>", "pod,container"),
    ("<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>;<<end>>", "empty=;namespace=web;pod=a|b;"),
    ("<<range $g := .GroupBySlice>><<$g>><<.>><<end>>", "podpodcontainercontainer"),
    ("<<range .LabelValuesByName.missing>>x<<else>>none<<end>>", "none"),
]


@pytest.mark.parametrize(("text", "output"), RENDERED, ids=[text for text, _ in RENDERED])
def test_render(text: str, output: str) -> None:
    assert template.parse(text).render(VARIABLES) == output


REFUSED = [
    (
        "<<.Nope>>",
        (
            "1:3: unknown variable .Nope, expected one of .Series, .LabelMatchers, .LabelValuesByName, "
            ".GroupBy, .GroupBySlice"
        ),
    ),
    ("a\n  <<$.Nope.x>>", "2:5: unknown variable .Nope, expected one of "),
    ("<<.LabelMatchersByName>>", "1:3: unknown variable .LabelMatchersByName"),
    ("<<.Series.x>>", "1:3: text has no field .x"),
    ("<<.GroupBySlice.x>>", "1:3: a list has no field .x"),
    ("<<(len .Series).x>>", "1:3: an integer has no field .x"),
    ("<<range .Series>><<end>>", '1:9: "range" goes over a list or a map, not text'),
    ("<<range .>><<end>>", '1:9: "range" goes over a list or a map, not the template\'s variables'),
    ("<<range 3>><<end>>", '1:9: "range" goes over a list or a map, not an integer'),
    ("<<index .GroupBySlice 2>>", "1:3: index: index 2 is out of range"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED, ids=[text for text, _ in REFUSED])
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
