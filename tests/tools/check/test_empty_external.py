from collections.abc import Sequence

import pytest

from adapter.model.metrics import Sample
from adapter.rules.matchers import Matcher
from fastpath_tools.check import empty
from fastpath_tools.check.empty import EmptyCase

SELECTOR = (Matcher("queue", "=", "mail"),)


def test_followups() -> None:
    assert empty.external_followups("queue", "ns", "shop", SELECTOR) == (
        'count by (ns) (queue{queue="mail"})',
        'count (queue{ns="shop"})',
    )
    assert empty.external_followups("queue", "k8s.ns", "shop", ()) == (
        'count by ("k8s.ns") (queue{})',
        'count (queue{"k8s.ns"="shop"})',
    )
    assert empty.external_followups("queue", "", "shop", ()) == (
        "count by () (queue{})",
        "count (queue{})",
    )


MAKES_NOTHING = (
    "the series queue are there, but the metricsQuery of externalRules[0] returns nothing for them: a rate "
    "needs two samples within its window, and every other matcher and operand has to find something; run it "
    "part by part"
)
ELSEWHERE = (
    "and an external metric is read in the namespace of the autoscaler (shop): map the label that holds it"
)
REMEDY = "or set resources.namespaced: false on externalRules[0]"

# Label for namespaces, selector, samples of the two follow-ups (their labels), labels of the series, and the
# sentence.
NOTHING: dict[str, tuple[str, str, Sequence[dict[str, str]], Sequence[dict[str, str]], set[str], str]] = {
    "series are there": ("ns", "", [{"ns": "shop"}], [{}], set(), MAKES_NOTHING),
    "series are there, not namespaced": ("", "", [{}], [{}], set(), MAKES_NOTHING),
    "other namespaces": (
        "ns",
        "",
        [{"ns": "b"}, {"ns": "a"}],
        [],
        {"ns"},
        f"queue has ns='a', 'b', {ELSEWHERE}, {REMEDY}",
    ),
    "other namespaces, with a hint": (
        "ns",
        "",
        [{"ns": "b"}],
        [],
        {"ns", "exported_namespace"},
        f"queue has ns='b', {ELSEWHERE}, such as exported_namespace: {{resource: namespace}}, {REMEDY}",
    ),
    "no such label": ("ns", "", [{}], [], set(), f"queue has no label ns, {ELSEWHERE}, {REMEDY}"),
    "the selector": (
        "ns",
        'queue="mail"',
        [],
        [{}],
        {"ns", "queue"},
        'no series of queue matches the selector queue="mail": compare it with the labels (ns, queue)',
    ),
    "nothing any more": (
        "ns",
        "",
        [],
        [{}],
        set(),
        "queue was there in the last 10m0s but has no sample now: check that its targets are up",
    ),
}


@pytest.mark.parametrize(
    ("label", "selector", "named", "around", "labels", "sentence"), NOTHING.values(), ids=NOTHING
)
def test_explain_nothing(
    label: str,
    selector: str,
    named: Sequence[dict[str, str]],
    around: Sequence[dict[str, str]],
    labels: set[str],
    sentence: str,
) -> None:
    case = EmptyCase(
        "externalRules[0]",
        "queue",
        label,
        "shop",
        [Sample(each, 1, 0) for each in named],
        [Sample(each, 1, 0) for each in around],
        frozenset(labels),
        "10m0s",
    )
    assert empty.no_sample_of_external(case, selector) == sentence


@pytest.mark.parametrize(
    ("metric", "number", "sentence"),
    [
        ("queue", 1, "queue is served: 1 value"),
        ("queue", 2, "queue is served: 2 values, which an autoscaler adds up"),
        (
            "Queue",
            1,
            (
                "Queue is served, but autoscalers request external metrics in lower case and never find it: "
                "give it a lower-case name through name.as"
            ),
        ),
    ],
)
def test_served(metric: str, number: int, sentence: str) -> None:
    assert empty.served(metric, number) == sentence


def test_no_namespace_label() -> None:
    assert empty.no_namespace_label("externalRules[0]") == (
        "externalRules[0] names no label for namespaces, so every request fails: add an override for "
        "namespace, or set resources.namespaced: false"
    )


def test_an_external_metric_that_lacks_a_part() -> None:
    assert empty.lacks_a_part("lag", 1, 3).startswith(
        "1 of 3 values of lag are not numbers, so every request fails"
    )
