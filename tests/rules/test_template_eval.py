"""What templates render to. Every output below is what Go's ``text/template`` prints for the same template and variables."""

import pytest

from adapter import errors
from adapter.rules import template

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
    ("<<.LabelValuesByName.missing.deeper `argument`>>", "<no value>"),
    ("<<true>> <<false>> <<1>> <<1.5>> <<'a'>> <<`r`>>", "true false 1 1.5 97 r"),
    (
        "<<.>>",
        '{http_requests_total namespace="web",pod=~"a|b" map[empty: namespace:web pod:a|b] pod,container [pod container]}',
    ),
    ("<<and nil 1>>", "<no value>"),
    ("<<print nil>>", "<nil>"),
    # variables
    ('<<$x := "v">><<$x>>', "v"),
    ('<<$x:="v">><<$x>>', "v"),
    ("<<$x := 1>><<$x = 2>><<$x>>", "2"),
    ("<<$x := 1>><<if true>><<$x = 2>><<end>><<$x>>", "2"),
    ("<<$x := 1>><<if true>><<$x := 2>><<end>><<$x>>", "1"),
    ("<<$x := .LabelValuesByName>><<$x.pod>>", "a|b"),
    ("<<($x := 1)>><<$x>>", "11"),
    ("<<with $x := .Series>><<$x>><<end>>", "http_requests_total"),
    ("<<if $x := .Series>><<$x>><<end>>", "http_requests_total"),
    # pipelines
    ("<<.Series | printf `%q`>>", '"http_requests_total"'),
    ("<<.Series | len | printf `%d-%s` 7 | html>>", "7-%!s(int=19)"),
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
    ("<<if 0>>1<<else if 0.0>>2<<else if false>>3<<else if ``>>4<<else if 1>>5<<end>>", "5"),
    ("<<if .>>struct<<end>>", "struct"),
    ("<<if not (index .LabelValuesByName `pod`)>>no<<end>>", ""),
    # with
    ("<<with .LabelValuesByName>><<.pod>> <<$.GroupBy>><<end>>", "a|b pod,container"),
    ("<<with .LabelValuesByName.missing>>x<<else>><<.Series>><<end>>", "http_requests_total"),
    # range
    ("<<range .GroupBySlice>>[<<.>>]<<end>>", "[pod][container]"),
    ("<<range .LabelValuesByName>>[<<.>>]<<end>>", "[][web][a|b]"),
    ("<<range $i, $g := .GroupBySlice>><<if $i>>,<<end>><<$g>><<end>>", "pod,container"),
    ("<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>;<<end>>", "empty=;namespace=web;pod=a|b;"),
    ("<<range $g := .GroupBySlice>><<$g>><<.>><<end>>", "podpodcontainercontainer"),
    ("<<range slice .GroupBySlice 2>>x<<else>>none<<end>>", "none"),
    ("<<range .LabelValuesByName.missing>>x<<else>>none<<end>>", "none"),
    ("<<range .GroupBySlice>><<break>><<end>>x", "x"),
    ("<<range .GroupBySlice>><<if eq . `pod`>><<continue>><<end>><<.>><<end>>", "container"),
    ("<<range .GroupBySlice>><<.>><<if eq . `pod`>><<break>><<end>><<end>>", "pod"),
    ("<<range .GroupBySlice>><<range $.GroupBySlice>><<break>><<end>><<.>> <<end>>", "pod container "),
    ("<<range .GroupBySlice>><<with .>><<continue>><<end>>x<<end>>y", "y"),
    ("<<range .GroupBySlice>><<$x := .>><<end>><<range $i, $x := .GroupBySlice>><<$i>><<end>>", "01"),
    ("<<$b := .GroupBySlice>><<range $a, $b>><<$a>> <<end>>", "pod container "),
    # define, template, block
    ('<<define "m">><<.>>!<<end>><<template "m" .Series>>', "http_requests_total!"),
    ('<<template "m" .>><<define "m">><<.GroupBy>> <<$.GroupBy>><<end>>', "pod,container pod,container"),
    ('<<template "m">><<define "m">><<.>><<.Any.Thing>><<end>>', "<no value><no value>"),
    ('<<block "m" .GroupBySlice>><<len .>><<end>>', "2"),
    ('<<block "m" $x := 5>><<.>><<end>><<$x>>', "55"),
    ("<<define `m`>>  <<end>><<define `m`>>second<<end>><<template `m`>>", "second"),
    ("<<define `m`>>first<<end>><<define `m`>>\n<<end>><<template `m`>>", "first"),
    (
        "<<define `r`>><<if .>><<slice . 0 1>><<template `r` slice . 1>><<end>><<end>><<template `r` `abc`>>",
        "abc",
    ),
    ("<<$x := 1>><<define `m`>><<$x := 2>><<$x>><<end>><<template `m`>><<$x>>", "21"),
]


@pytest.mark.parametrize(("text", "output"), RENDERED, ids=[text for text, _ in RENDERED])
def test_render(text: str, output: str) -> None:
    assert template.parse(text).render(VARIABLES) == output


def test_assigning_range_variables_change_those_outside() -> None:
    """As of Go 1.21; before, the assigned variables kept the list itself."""
    text = "<<$i := 0>><<$x := ``>><<range $i, $x = .GroupBySlice>><<end>><<$i>><<$x>>"
    assert template.parse(text).render(VARIABLES) == "1container"
    text = "<<$x := ``>><<range $x = .GroupBySlice>><<$x>> <<end>><<$x>>"
    assert template.parse(text).render(VARIABLES) == "pod container container"


REFUSED = [
    (
        "<<.Nope>>",
        "1:3: unknown variable .Nope, expected one of .Series, .LabelMatchers, .LabelValuesByName, .GroupBy, .GroupBySlice",
    ),
    ("a\n  <<$.Nope.x>>", "2:5: unknown variable .Nope, expected one of "),
    ("<<.LabelMatchersByName>>", "1:3: unknown variable .LabelMatchersByName"),
    ("<<.Series.x>>", "1:3: text has no field .x"),
    ("<<.GroupBySlice.x>>", "1:3: a list has no field .x"),
    ("<<(len .Series).x>>", "1:3: an integer has no field .x"),
    ("<<nil>>", "1:3: nil alone is not a command"),
    ("<<.Series `x`>>", "1:3: a value cannot be given an argument, only a function can"),
    ("<<`x` `y`>>", "1:3: a value cannot be given an argument, only a function can"),
    ("<<1 | (.Series)>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<1 | $>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<1 | .LabelValuesByName.pod>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<$x = 1>>", "1:3: undefined variable $x, expected $x := before it is changed"),
    ("<<$x := $x>>", "1:9: undefined variable $x, expected $x := before it is used"),
    ("<<template `gone`>>", '1:3: template "gone" is not defined'),
    ("<<range .Series>><<end>>", '1:9: "range" goes over a list or a map, not text'),
    ("<<range .>><<end>>", '1:9: "range" goes over a list or a map, not the template\'s variables'),
    ("<<range 3>><<end>>", '1:9: "range" goes over a list or a map, not an integer'),
    ("<<len>>", "1:3: len takes 1 argument, not 0"),
    ("<<eq>>", "1:3: eq takes at least 1 argument, not 0"),
    ("<<1 | len 2>>", "1:7: len takes 1 argument, not 2"),
    ("<<lt 1>>", "1:3: lt takes 2 arguments, not 1"),
    ("<<and>>", "1:3: and takes at least 1 argument, not 0"),
    ("<<index .GroupBySlice 2>>", "1:3: index: index 2 is out of range"),
    (
        "<<define `r`>><<template `r` .>><<end>><<template `r` .>>",
        "templates or parentheses are nested too deeply",
    ),
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


def test_rendering_twice_is_the_same() -> None:
    parsed = template.parse("<<$x := 1>><<range .GroupBySlice>><<$x>><<$x = 2>><<end>>")
    assert parsed.render(VARIABLES) == parsed.render(VARIABLES) == "12"
