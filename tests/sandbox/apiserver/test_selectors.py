import pytest

from fastpath_sandbox.apiserver import selectors
from fastpath_sandbox.apiserver.kinds import KindTable
from fastpath_sandbox.apiserver.status import StatusFailure
from fastpath_sandbox.apiserver.store import Record

KINDS = KindTable()


def record(**labels: str) -> Record:
    document = {
        "metadata": {"name": "a", "namespace": "n", "labels": labels},
        "spec": {"nodeName": "node-1", "unschedulable": True},
        "status": {"phase": "Running"},
    }
    return Record(document, 1)


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a==b", {"a": "b"}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "x"}, False),
        ("a in (x, y)", {"a": "y"}, True),
        ("a in (x,y)", {"a": "z"}, False),
        ("a in (x,y)", {}, False),
        ("a notin (x,y)", {"a": "z"}, True),
        ("a notin (x,y)", {}, True),
        ("a notin (x,y)", {"a": "x"}, False),
        ("a in (,x)", {"a": ""}, True),
        ("a=", {"a": ""}, True),
        ("a>1", {"a": "2"}, True),
        ("a gt 1", {"a": "1"}, False),
        ("a<1", {"a": "zero"}, False),
        ("a<1", {}, False),
        ("a lt 1", {"a": "0"}, True),
        ("a=b,c!=d", {"a": "b", "c": "x"}, True),
        ("a=b,c!=d", {"a": "b", "c": "d"}, False),
        ("example.com/a=b.c_d-e", {"example.com/a": "b.c_d-e"}, True),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], selected: bool) -> None:  # noqa: FBT001  # a table's column
    assert selectors.label_selector(text)(record(**labels)) is selected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=(x)", "unable to parse requirement: found '(', expected: identifier"),
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a>x",
            (
                'unable to parse requirement: values[0][a]: Invalid value: "x": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
    ],
)
def test_label_selectors_that_do_not_parse(text: str, message: str) -> None:
    with pytest.raises(StatusFailure) as refused:
        selectors.label_selector(text)
    assert refused.value.code == 400
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("kind", "text", "selected"),
    [
        ("pods", "", True),
        ("pods", "metadata.name=a", True),
        ("pods", "metadata.name==b", False),
        ("pods", "metadata.namespace!=n", False),
        ("pods", "status.phase=Running,spec.nodeName=node-1", True),
        ("pods", "status.phase!=Running", False),
        ("pods", "status.podIP=", True),
        ("nodes", "spec.unschedulable=true", True),
    ],
)
def test_field_selectors(kind: str, text: str, selected: bool) -> None:  # noqa: FBT001  # a table's column
    assert selectors.field_selector(KINDS.find(kind), text)(record()) is selected


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("pods", "spec.volumes=x", "field label not supported: spec.volumes"),
        (
            "configmaps",
            "data.x=1",
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("pods", "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ],
)
def test_field_selectors_that_are_refused(kind: str, text: str, message: str) -> None:
    with pytest.raises(StatusFailure) as refused:
        selectors.field_selector(KINDS.find(kind), text)
    assert refused.value.code == 400
    assert refused.value.message == message
