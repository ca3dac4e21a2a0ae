"""Queries whose questions may not be merged: the reason, and the wrong result of merging them anyway.

Objects are pods named by `pod` in namespaces named by `namespace`. The samples are `SAMPLES`.
"""

from dataclasses import dataclass

SAMPLES = """
# TYPE x gauge
x{namespace="n1",pod="a",team="b"} 1 1700000000
x{namespace="n1",pod="b",team="b"} 2 1700000000
x{namespace="n2",pod="a",team="b"} 10 1700000000
x{namespace="n2",pod="b",team="b"} 20 1700000000
# TYPE y gauge
y{namespace="n1",pod="b"} 5 1700000000
# TYPE z gauge
z{namespace="n1",pod="a",q="map[namespace:n1 pod:a]"} 7 1700000000
z{namespace="n1",pod="a",q="namespace=\\"n1\\",pod=\\"a\\""} 8 1700000000
# TYPE u gauge
u{namespace="n1",pod="a",instance="1",team="b"} 1 1700000000
u{namespace="n1",pod="b",instance="2",team="b"} 2 1700000000
# TYPE v gauge
v{namespace="n1",pod="1"} 1 1700000000
v{namespace="n1",pod="2"} 1 1700000000
"""
AT = 1_700_000_000.0

Answers = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Refusal:
    """One query, why it is refused, and what shows that it must be.

    `asked` are the questions. `merged` is the one query that would be sent for all of them; None where a
    merged query would do no harm and the refusal is caution, or where no Prometheus of ours knows the query.
    """

    template: str
    reason: str
    merged: str | None = None
    asked: tuple[tuple[str, str], ...] = (("n1", "a"), ("n1", "b"))
    object_label: str = "pod"


IN_ONE = 'namespace="n1",pod=~"a|b"'
IN_BOTH = 'namespace=~"n1|n2",pod=~"a|b"'
BOTH = (("n1", "a"), ("n2", "a"))
SUM = "sum by (pod) (x{<<.LabelMatchers>>})"

REFUSALS = {
    "a condition": Refusal(
        '<<if eq (index .LabelValuesByName "pod") "a">>x<<else>>y<<end>>{<<.LabelMatchers>>}',
        "the template has actions other than a plain variable",
        f"y{{{IN_ONE}}}",
    ),
    "another variable": Refusal(
        'sum by (pod) (z{q="<<.LabelValuesByName>>"})',
        "the template uses .LabelValuesByName",
        'sum by (pod) (z{q="map[namespace:n1 pod:a|b]"})',
    ),
    "does not parse": Refusal("sum by (pod) (x{<<.LabelMatchers>>}", "the query does not parse: "),
    "a scalar": Refusal("1 + time()", "the query is a scalar"),
    "a range of samples": Refusal("(x{<<.LabelMatchers>>}[5m])", "the query is a range of samples"),
    "a text": Refusal('"x"', "a string stands where a number is expected"),
    "a selector without the matchers": Refusal(
        "sum by (pod) (x)",
        "x is selected without <<.LabelMatchers>>",
        "sum by (pod, namespace) (x)",
        BOTH,
    ),
    "one of two selectors without the matchers": Refusal(
        'sum by (pod) (x{<<.LabelMatchers>>}) + sum by (pod) (x{team="b"})',
        "x is selected without <<.LabelMatchers>>",
        f'sum by (pod, namespace) (x{{{IN_BOTH}}}) + sum by (pod, namespace) (x{{team="b"}})',
        BOTH,
    ),
    "a selector without a name and matchers": Refusal(
        'sum by (pod) ({__name__=~"x"})',
        "{...} is selected without <<.LabelMatchers>>",
        'sum by (pod, namespace) ({__name__=~"x"})',
        BOTH,
    ),
    "the matchers twice": Refusal(
        "x{<<.LabelMatchers>>,<<.LabelMatchers>>}", "x is selected without <<.LabelMatchers>>"
    ),
    "the matchers inside a text": Refusal(
        "z{<<.LabelMatchers>>,q='<<.LabelMatchers>>'}",
        "z has <<.LabelMatchers>> inside a text",
        f"z{{{IN_ONE},q='{IN_ONE}'}}",
    ),
    "a matcher of its own on the object": Refusal(
        'x{<<.LabelMatchers>>,pod!="b"}', "x has a matcher of its own on pod"
    ),
    "a pattern of its own on the object": Refusal(
        'x{<<.LabelMatchers>>,pod=~".*"}', "x has a matcher of its own on pod"
    ),
    "a matcher of its own on the namespace": Refusal(
        'sum by (pod) (x{namespace="n1",<<.LabelMatchers>>})', "x has a matcher of its own on namespace"
    ),
    "alternatives in a selector": Refusal(
        'x{<<.LabelMatchers>> or team="b"}',
        "a selector joins matchers with or",
    ),
    "the series as a label": Refusal(
        "sum without (<<.Series>>) (x{<<.LabelMatchers>>})", "<<.Series>> is part of a label's name"
    ),
    "no grouping": Refusal(
        "x{<<.LabelMatchers>>} / on (namespace) group_left () sum(x{<<.LabelMatchers>>}) by (namespace)",
        "sum by (namespace) does not name pod",
        f"x{{{IN_ONE}}} / on (namespace) group_left () sum(x{{{IN_ONE}}}) by (namespace)",
    ),
    "everything summed up": Refusal(
        "x{<<.LabelMatchers>>} / on () group_left () sum(x{<<.LabelMatchers>>})",
        "sum without a grouping gives one value for all objects",
        f"x{{{IN_ONE}}} / on () group_left () sum(x{{{IN_ONE}}})",
    ),
    "without the object": Refusal(
        "x{<<.LabelMatchers>>} / on (namespace) group_left () sum without (pod) (x{<<.LabelMatchers>>})",
        "sum without (pod) drops pod",
        f"x{{{IN_ONE}}} / on (namespace) group_left () sum without (pod) (x{{{IN_ONE}}})",
    ),
    "without the namespace": Refusal(
        "sum without (namespace) (x{<<.LabelMatchers>>})",
        "sum without (namespace) drops namespace",
        f"sum without (namespace) (x{{{IN_BOTH}}})",
        BOTH,
    ),
    "topk": Refusal(
        "topk(1, x{<<.LabelMatchers>>})", "topk combines several objects", f"topk(1, x{{{IN_ONE}}})"
    ),
    "bottomk": Refusal(
        "bottomk by (namespace) (1, x{<<.LabelMatchers>>})",
        "bottomk combines several objects",
        f"bottomk by (namespace) (1, x{{{IN_ONE}}})",
    ),
    "limitk": Refusal("limitk(1, x{<<.LabelMatchers>>})", "limitk combines several objects"),
    "limit_ratio": Refusal("limit_ratio(0.5, x{<<.LabelMatchers>>})", "limit_ratio combines several objects"),
    "count_values": Refusal(
        'count_values("pod", v{<<.LabelMatchers>>})',
        "count_values combines several objects",
        'count_values("pod", v{namespace="n1",pod=~"1|2"})',
        (("n1", "1"), ("n1", "2")),
    ),
    "absent": Refusal(
        "absent(x{<<.LabelMatchers>>})",
        "absent() cannot be split by object",
        'absent(x{namespace="n1",pod=~"c|d"})',
        (("n1", "c"), ("n1", "d")),
    ),
    "absent_over_time": Refusal(
        "absent_over_time(x{<<.LabelMatchers>>}[1m])",
        "absent_over_time() cannot be split by object",
        'absent_over_time(x{namespace="n1",pod=~"c|d"}[1m])',
        (("n1", "c"), ("n1", "d")),
    ),
    "scalar": Refusal(
        "x{<<.LabelMatchers>>} * scalar(x{<<.LabelMatchers>>})",
        "scalar() cannot be split by object",
        f"x{{{IN_ONE}}} * scalar(x{{{IN_ONE}}})",
    ),
    "vector": Refusal(
        "x{<<.LabelMatchers>>} * on () group_left () vector(scalar(x{<<.LabelMatchers>>}))",
        "vector() cannot be split by object",
        f"x{{{IN_ONE}}} * on () group_left () vector(scalar(x{{{IN_ONE}}}))",
    ),
    "sort": Refusal("sort(x{<<.LabelMatchers>>})", "sort() cannot be split by object"),
    "sort_desc": Refusal("sort_desc(x{<<.LabelMatchers>>})", "sort_desc() cannot be split by object"),
    "label_replace": Refusal(
        'sum by (pod) (label_replace(u{<<.LabelMatchers>>}, "pod", "b", "pod", "a"))',
        "label_replace() cannot be split by object",
        f'sum by (pod) (label_replace(u{{{IN_ONE}}}, "pod", "b", "pod", "a"))',
    ),
    "label_join": Refusal(
        'sum by (pod) (label_join(u{<<.LabelMatchers>>}, "pod", "", "team"))',
        "label_join() cannot be split by object",
        f'sum by (pod) (label_join(u{{{IN_ONE}}}, "pod", "", "team"))',
    ),
    "no series": Refusal("x{<<.LabelMatchers>>} * on (pod) minute()", "minute() reads no series"),
    "ignoring": Refusal(
        "x{<<.LabelMatchers>>} unless ignoring (pod, team) y{<<.LabelMatchers>>}",
        "ignoring() may match objects with one another",
        f"x{{{IN_ONE}}} unless ignoring (pod, team) y{{{IN_ONE}}}",
    ),
    "on other labels": Refusal(
        "x{<<.LabelMatchers>>} unless on (namespace) y{<<.LabelMatchers>>}",
        "on (namespace) does not name pod",
        f"x{{{IN_ONE}}} unless on (namespace) y{{{IN_ONE}}}",
    ),
    "a namespace copied": Refusal(
        "x{<<.LabelMatchers>>} * on (pod) group_left (namespace) y{<<.LabelMatchers>>}",
        "the group modifier copies namespace from one object to another",
    ),
    "fill values": Refusal(
        "x{<<.LabelMatchers>>} + on (pod) fill (0) y{<<.LabelMatchers>>}",
        "fill values stand in for objects that have no series",
    ),
    "a label that functions drop": Refusal(
        "histogram_quantile(0.9, x{<<.LabelMatchers>>})",
        "le names the objects, and functions drop it",
        object_label="le",
    ),
}

# Queries whose questions may be merged within a namespace; `merged` is the joined form with which it goes
# wrong across them.
JOIN_REFUSALS = {
    "on names the namespace and one side lacks it": Refusal(
        f"x{{<<.LabelMatchers>>}} * on (pod, namespace) {SUM}",
        "the sides of * differ in the label namespace",
        f"x{{{IN_BOTH}}} * on (pod, namespace) sum by (pod, namespace) (x{{{IN_BOTH}}})",
        BOTH,
    ),
    "all labels are matched and one side lacks the namespace": Refusal(
        f"{SUM} * sum by (pod, namespace) (x{{<<.LabelMatchers>>}})",
        "the sides of * differ in the label namespace",
        f"sum by (pod, namespace) (x{{{IN_BOTH}}}) * sum by (pod, namespace) (x{{{IN_BOTH}}})",
        BOTH,
    ),
    "or puts together what has a namespace and what has none": Refusal(
        f"sum by (pod, namespace) (x{{<<.LabelMatchers>>}}) unless {SUM}",
        "the sides of unless differ in the label namespace",
        f"sum by (pod, namespace) (x{{{IN_BOTH}}}) unless sum by (pod, namespace) (x{{{IN_BOTH}}})",
        BOTH,
    ),
    "or on the object, as before": Refusal(
        f"{SUM} or on (pod) x{{<<.LabelMatchers>>}}", "the sides of or differ in the label namespace"
    ),
}
