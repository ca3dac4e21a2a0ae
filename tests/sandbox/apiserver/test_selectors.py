import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.model.objects.label_selectors import parse_selector
from fastpath_sandbox.apiserver import selectors
from fastpath_sandbox.apiserver.kinds import KindTable
from fastpath_sandbox.apiserver.store import Record
from tests.support.answers import answers

KINDS = KindTable()


def record(**labels: str) -> Record:
    document = {
        "metadata": {"name": "a", "namespace": "n", "labels": labels},
        "spec": {"nodeName": "node-1", "unschedulable": True},
        "status": {"phase": "Running"},
    }
    return Record(document, 1)


KEYS, VALUES = st.sampled_from("ab"), st.sampled_from("xy")
REQUIREMENTS = st.one_of(
    st.sampled_from(["a", "!a", "a=", "a in (,x)", "example.com/a=b.c_d-e"]),
    st.builds("{} {} {}".format, KEYS, st.sampled_from(["=", "==", "!="]), VALUES),
    st.builds("{} {} ({},1)".format, KEYS, st.sampled_from(["in", "notin"]), VALUES),
    st.builds("a{}{}".format, st.sampled_from("<>"), st.integers(0, 2)),
)
LABELS = st.dictionaries(
    st.sampled_from(["a", "b", "example.com/a"]), st.sampled_from(["", "x", "y", "1", "b.c_d-e"])
)


@example("a>1,b<1", {"a": "2", "b": "0"})
@given(st.lists(REQUIREMENTS, max_size=3).map(",".join), LABELS)
def test_label_selectors_mean_what_the_adapter_reads_in_them(text: str, labels: dict[str, str]) -> None:
    assert selectors.label_selector(text)(record(**labels)) is parse_selector(text, later=True).matches(
        labels
    )


@pytest.mark.parametrize(("kind", "text", "selected"), answers("sandbox/selectors", "fields"))
def test_field_selectors(kind: str, text: str, selected: bool) -> None:  # noqa: FBT001  # a table's column
    assert selectors.field_selector(KINDS.find(kind), text)(record()) is selected
