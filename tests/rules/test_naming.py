import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.errors import NamingError, TemplateError
from adapter.model.metrics import GroupResource
from adapter.model.objects.resources import BUILTIN
from adapter.rules import matchers, naming
from adapter.rules.naming import MetricNamer, ResourceConverter
from adapter.rules.template.template import LabelTemplate
from tests.support.answers import answers

Reported = tuple[str, str, str]
Filters = Sequence[tuple[str, bool]]


def compile_namer(
    matches: str = "", expansion: str = "", filters: Filters = ()
) -> tuple[MetricNamer | None, list[Reported]]:
    reports: list[Reported] = []
    namer = naming.compile_namer(filters, matches, expansion, lambda *report: reports.append(report))
    return namer, reports


def namer(matches: str = "", expansion: str = "", filters: Filters = ()) -> MetricNamer:
    made, reports = compile_namer(matches, expansion, filters)
    assert made is not None
    assert not reports
    return made


@pytest.mark.parametrize(("matches", "expansion", "series", "expected"), answers("rules/naming", "names"))
def test_name(matches: str, expansion: str, series: str, expected: str) -> None:
    assert namer(matches, expansion).expand(series) == expected


_UNWRITABLE = 'a.b 1a é a{} a# a-b "a" NaN inf bool ON'
UNWRITABLE = ["", "a b", "a\n", 'a{x="y"} or b', *_UNWRITABLE.split()]


@pytest.mark.parametrize("series", UNWRITABLE)
def test_a_series_that_promql_reads_as_something_else_is_not_taken(series: str) -> None:
    assert namer("", "").name(series) is None
    assert namer("", "").rejection(series) == naming.UNWRITABLE


@pytest.mark.parametrize("series", ["a", "_", ":", "A_9:b", "or", "nan_", "info"])
def test_a_legacy_name_is_taken(series: str) -> None:
    assert namer("", "").name(series) == series
    assert namer("", "").rejection(series) is None


@pytest.mark.parametrize(("matches", "filters", "series", "reason"), answers("rules/naming", "rejected"))
def test_rejection(matches: str, filters: Filters, series: str, reason: str) -> None:
    made = namer(matches, filters=filters)
    assert made.name(series) is None
    assert made.rejection(series) == reason


def test_filters_are_searched_anywhere() -> None:
    made = namer(filters=(("b", True), ("^b", False)))
    assert made.name("abc") == "abc"
    assert made.rejection("abc") is None


@pytest.mark.parametrize(("matches", "expansion", "filters", "expected"), answers("rules/naming", "faults"))
def test_faults(matches: str, expansion: str, filters: Filters, expected: list[list[str]]) -> None:
    made, reports = compile_namer(matches, expansion, filters)
    assert made is None
    assert [[*report[:2]] for report in reports] == expected
    assert all(report[2].startswith("expected a ") for report in reports)


@pytest.mark.parametrize(("expression", "reason"), answers("rules/naming", "like Go"))
def test_what_go_takes_and_re2_does_not_and_the_other_way_round(expression: str, reason: str | None) -> None:
    if reason is None:
        assert matchers.compile_expression(expression).pattern == expression
    else:
        with pytest.raises(ValueError, match=re.escape(reason)):
            matchers.compile_expression(expression)


def test_two_groups_with_a_replacement() -> None:
    assert namer("(a)(b)", "${2}${1}").name("ab") == "ba"


def test_the_reason_of_a_bad_expression_is_said() -> None:
    with pytest.raises(ValueError, match=r"missing \)"):
        matchers.compile_expression("(a")


@pytest.mark.parametrize(("matches", "expansion", "metric", "expected"), answers("rules/naming", "may give"))
def test_may_give(matches: str, expansion: str, metric: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert namer(matches, expansion).may_give(metric) is expected


def go_expand(template: str, groups: list[str | None], names: Mapping[str, int]) -> str:
    """Do what Go's Regexp.Expand says it does, told by its documentation rather than by its steps."""
    reference = re.compile(r"\$(?:\$|\{(\w+)\}|(\w+))", re.ASCII)

    def replace(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name: str = found[1] or found[2]
        if re.fullmatch(r"0|[1-9][0-9]{0,8}", name):
            number = int(name)
            return (groups[number] or "") if number < len(groups) else ""
        return (groups[names[name]] or "") if name in names else ""

    return reference.sub(replace, template)


@pytest.mark.timeout(60)
@example("$$a$b")
@given(template=st.text(st.sampled_from("$${}01239_abx-"), max_size=12))
def test_expansion_is_that_of_go(template: str) -> None:
    expression = matchers.compile_expression("^(?P<a>a)?(?P<b>b*)(c)(?P<a1>d)$")
    match = expression.search("bbcd")
    pieces = naming.parse_expansion(template, expression.groups, expression.groupindex)
    expanded = "".join(
        piece.text if piece.group is None else (match.group(piece.group) or "") for piece in pieces
    )
    assert expanded == go_expand(template, ["bbcd", None, "bb", "c", "d"], {"a": 1, "b": 2, "a1": 4})


# Labels and resources.

PODS = GroupResource("", "pods")
INGRESSES = GroupResource("networking.k8s.io", "ingresses")
DEPLOYMENTS = GroupResource("apps", "deployments")


def converter(template: str = "", **overrides: str) -> ResourceConverter:
    by_label = {}
    for label, text in overrides.items():
        name, _, group = text.partition(".")
        resource = BUILTIN.lookup(name, group)
        assert resource is not None
        by_label[label] = resource
    label_template = LabelTemplate(template) if template else None
    pattern = matchers.compile_expression(label_template.pattern()) if label_template else None
    return ResourceConverter(by_label, label_template, pattern, BUILTIN)


@pytest.mark.parametrize(("template", "label", "expected"), answers("rules/naming", "labels"))
def test_resource_for(template: str, label: str, expected: str | None) -> None:
    made = converter(template, pod_name="pod")
    for _ in range(2):  # the second time from memory
        found = made.resource_for(label)
        assert (str(found.group_resource) if found else None) == expected


def test_resources_for_names_each_once_in_the_order_of_labels() -> None:
    made = converter("<<.Resource>>", a_pod="pod")
    found = made.resources_for(["service", "pod", "a_pod", "le", "namespace"])
    assert [str(resource.group_resource) for resource in found] == ["pods", "namespaces", "services"]


RESOURCE_LABELS = {
    "override": ("", PODS, "pod_name"),
    "override before template": ("kube_<<.Resource>>", PODS, "pod_name"),
    "template has the singular": ("kube_<<.Resource>>", DEPLOYMENTS, "kube_deployment"),
    "group with underscores": ("<<.Group>>_<<.Resource>>", INGRESSES, "networking_k8s_io_ingress"),
    "core group is empty": ("<<.Group>>_<<.Resource>>", naming.NAMESPACES, "_namespace"),
}


@pytest.mark.parametrize(("template", "resource", "expected"), RESOURCE_LABELS.values(), ids=RESOURCE_LABELS)
def test_label_for(template: str, resource: GroupResource, expected: str) -> None:
    made = converter(template, pod_name="pod")
    assert [made.label_for(resource), made.label_for(resource)] == [expected, expected]


def test_of_two_overrides_the_last_is_used_in_queries() -> None:
    made = converter(pod="pod", pod_name="pod")
    assert made.label_for(PODS) == "pod_name"
    assert made.resource_for("pod") == made.resource_for("pod_name")


def test_no_label() -> None:
    with pytest.raises(NamingError, match=r"^no generic resource label form specified for this metric$"):
        converter(pod="pod").label_for(naming.NAMESPACES)


def test_empty_label() -> None:
    with pytest.raises(TemplateError, match="empty label"):
        converter("<<if .Group>><<.Resource>><<end>>").label_for(PODS)
