"""Format strings of ``printf``. Every output is what Go's ``fmt.Sprintf`` gives for the same values."""

import pytest

from adapter import errors
from adapter.rules import template

VARIABLES: dict[str, template.Value] = {
    "Series": "abc",
    "LabelMatchers": 'a="é`"',
    "LabelValuesByName": {"pod": "p", "a": ""},
    "GroupBy": "",
    "GroupBySlice": ["x", 'y"'],
}

RENDERED = [
    # text
    ("<<printf `%s|%v|%5s|%-5s|%05s` .Series .Series .Series .Series .Series>>", "abc|abc|  abc|abc  |00abc"),
    ("<<printf `%.2s|%5.1s|%.0s|%.s|%.9s` .Series .Series .Series .Series .Series>>", "ab|    a|||abc"),
    (
        "<<printf `%q|%+q|%#q|%#q|%10q|%.1q` .LabelMatchers .LabelMatchers .Series .LabelMatchers .Series .Series>>",
        '"a=\\"é`\\""|"a=\\"\\u00e9`\\""|`abc`|"a=\\"é`\\""|     "abc"|"a"',
    ),
    ('<<printf "%+q" "\\U0001f600">>', '"\\U0001f600"'),
    (
        "<<printf `%x|%X|% x|%#x|%# X|%.1x|%8x|%-8x|%x|` .Series `jkl` .Series .Series `jk` .Series .Series .Series .GroupBy>>",
        "616263|6A6B6C|61 62 63|0x616263|0X6A 0X6B|61|  616263|616263  ||",
    ),
    ("<<printf `%#v|%+v|%#5.1v` .Series .Series .Series>>", '"abc"|abc|  "a"'),
    ("<<printf `%T|%6T|%.3T` .Series .Series .Series>>", "string|string|str"),
    # integers
    (
        "<<printf `%d|%5d|%-5d|%05d|%+d|% d|%.4d|%6.3d|%+06d` 42 42 42 42 42 42 42 42 42>>",
        "42|   42|42   |00042|+42| 42|0042|   042|+00042",
    ),
    ("<<printf `%d|%05d|%x|%X|%b` -42 -42 -42 -42 -5>>", "-42|-0042|-2a|-2A|-101"),
    ("<<printf `%#x|%#X|%#o|%O|%#b|%#o|%o` 255 255 8 8 5 0 9>>", "0xff|0XFF|010|0o10|0b101|0|11"),
    ("<<printf `%.0d|%3.0d|%03.0d|` 0 0 0>>", "|   |   |"),
    ("<<printf `%c|%3c|%q|%q|%q|%+q|%q` 65 233 65 39 34 233 10>>", "A|  é|'A'|'\\''|'\"'|'\\u00e9'|'\\n'"),
    ("<<printf `%c|%q|%c|%c` 1114112 -1 55296 1114111>>", "\ufffd|'\ufffd'|\ufffd|\U0010ffff"),
    (
        "<<printf `%U|%#U|%#U|%.6U|%9U|%U` 233 233 10 233 233 -1>>",
        "U+00E9|U+00E9 'é'|U+000A|U+0000E9|   U+00E9|U+FFFFFFFFFFFFFFFF",
    ),
    ("<<printf `%v|%T|%#v` 7 7 7>>", "7|int|7"),
    # floats
    (
        "<<1.0>> <<0.1>> <<123456.5>> <<1234567.5>> <<100000.0>> <<1e6>> <<1e21>> <<0.0001>> <<0.00001>> <<-0.0>> <<-2.5>> <<1.5e-7>>",
        "1 0.1 123456.5 1.2345675e+06 100000 1e+06 1e+21 0.0001 1e-05 -0 -2.5 1.5e-07",
    ),
    (
        "<<printf `%f|%.2f|%8.3f|%-8.1f|%+.1f|%08.2f|%F|% f` 1.5 2.345 1.5 1.5 1.5 -1.5 1.5 1.5>>",
        "1.500000|2.35|   1.500|1.5     |+1.5|-0001.50|1.500000| 1.500000",
    ),
    (
        "<<printf `%e|%E|%.1e|%g|%G|%.3g|%g` 1234.5 1234.5 1234.5 1e-7 1e-7 1234.5 2.0>>",
        "1.234500e+03|1.234500E+03|1.2e+03|1e-07|1E-07|1.23e+03|2",
    ),
    (
        "<<printf `%#g|%#.3g|%#.0f|%#.0e|%#g|%#g` 1.0 1.0 2.0 2.0 0.0 1e9>>",
        "1.00000|1.00|2.|2.e+00|0.00000|1.00000e+09",
    ),
    ("<<printf `%T|%#v|%5v` 1.5 1e6 1.5>>", "float64|1e+06|  1.5"),
    # truth, nil
    ("<<printf `%t|%v|%6t|%-6v|%T` true false true false true>>", "true|false|  true|false |bool"),
    (
        "<<printf `%v|%6v|%T|%s|%d` nil nil nil nil .LabelValuesByName.gone>>",
        "<nil>| <nil>|<nil>|%!s(<nil>)|%!d(<nil>)",
    ),
    # maps, lists, the variables
    (
        "<<printf `%v|%s|%q|%5s|%x|%#v|%T` .GroupBySlice .GroupBySlice .GroupBySlice .GroupBySlice .GroupBySlice .GroupBySlice .GroupBySlice>>",
        '[x y"]|[x y"]|["x" "y\\""]|[    x    y"]|[78 7922]|[]string{"x", "y\\""}|[]string',
    ),
    (
        "<<printf `%v|%q|%#v|%T` .LabelValuesByName .LabelValuesByName .LabelValuesByName .LabelValuesByName>>",
        'map[a: pod:p]|map["a":"" "pod":"p"]|map[string]string{"a":"", "pod":"p"}|map[string]string',
    ),
    ("<<printf `%v` .>>", '{abc a="é`" map[a: pod:p]  [x y"]}'),
    (
        "<<printf `%+v` .>>",
        '{Series:abc LabelMatchers:a="é`" LabelValuesByName:map[a: pod:p] GroupBy: GroupBySlice:[x y"]}',
    ),
    # numbers of values, widths and precisions from values
    ("<<printf `%[2]s %[1]s %s` .Series `b`>>", "b abc b"),
    ("<<printf `%*d|%-*d|%*d|%.*f` 5 42 5 42 -5 42 1 2.55>>", "   42|42   |42   |2.5"),
    ("<<printf `%[3]*.[2]*[1]f` 12.0 2 6>>", " 12.00"),
    ("<<printf `%0*d|%0*d|%00005d` 5 42 -5 42 42>>", "00042|42   |00042"),
    # complaints
    (
        "<<printf `%d|%d|%s|%t|%s` .Series 1.5 42 42 true>>",
        "%!d(string=abc)|%!d(float64=1.5)|%!s(int=42)|%!t(int=42)|%!s(bool=true)",
    ),
    ("<<printf `%z|%!|%é` 1 2 3>>", "%!z(int=1)|%!!(int=2)|%!é(int=3)"),
    ("<<printf `%d` .GroupBySlice>>", '[%!d(string=x) %!d(string=y")]'),
    ("<<printf `%5z|%+z|%#z` .Series 5 1.5>>", "%!z(string=  abc)|%!z(int=+5)|%!z(float64=1.50000)"),
    ("<<printf `%s`>> <<printf `%s %s` 1>>", "%!s(MISSING) %!s(int=1) %!s(MISSING)"),
    ("<<printf `x` 1 `a` nil true>>", "x%!(EXTRA int=1, string=a, <nil>, bool=true)"),
    (
        "<<printf `%`>> <<printf `%5`>> <<printf `%-`>> <<printf `%[1]` 1>>",
        "%!(NOVERB) %!(NOVERB) %!(NOVERB) %!(NOVERB)",
    ),
    (
        "<<printf `%[5]d|%[0]d|%[x]d|%[]d|%[1` 1>>",
        "%!d(BADINDEX)|%!d(BADINDEX)|%!d(BADINDEX)|%!d(BADINDEX)|%!(NOVERB)",
    ),
    ("<<printf `%[` 1>>", "%!(NOVERB)"),
    ("<<printf `%[]` 1>>", "%!](BADINDEX)"),
    ("<<printf `%[1]5d|%[1].2d` 1>>", "%!d(BADINDEX)|%!d(BADINDEX)"),
    (
        "<<printf `%*d` `a` 1>>|<<printf `%*d`>>|<<printf `%*d` 1000001 1>>",
        "%!(BADWIDTH)1|%!(BADWIDTH)%!d(MISSING)|%!(BADWIDTH)1",
    ),
    ("<<printf `%.*d` `a` 1>>|<<printf `%.*d` -1 1>>", "%!(BADPREC)1|%!(BADPREC)1"),
    ("<<printf `%.` 1>>|<<printf `100%% %5%` 1>>", "%!.(int=1)|100% %%!(EXTRA int=1)"),
]


@pytest.mark.parametrize(("text", "output"), RENDERED, ids=[text for text, _ in RENDERED])
def test_printf(text: str, output: str) -> None:
    assert template.parse(text).render(VARIABLES) == output


UNSUPPORTED = [
    ("printf `%b` 1.5", "%b of a float is not supported"),
    ("printf `%X` 1.5", "%X of a float is not supported"),
    ("printf `%p` .GroupBySlice", "%p is not supported"),
    ("printf `%9999999d` 1", 'a width or precision of more than 1000000 in "%9999999d"'),
    ("printf `%.1000001d` 1", 'a width or precision of more than 1000000 in "%.1000001d"'),
]


@pytest.mark.parametrize(("action", "sentence"), UNSUPPORTED, ids=[action for action, _ in UNSUPPORTED])
def test_what_is_not_offered_is_refused(action: str, sentence: str) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<{action}>>").render(VARIABLES)
    assert str(caught.value) == f"1:3: printf: {sentence}"


def test_the_variables_in_go_syntax() -> None:
    assert template.parse("<<printf `%#v %T` . .>>").render({"A": "x"}) == 'struct{A:"x"} struct'
