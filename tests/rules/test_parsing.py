"""Queries within the limits of the parser's recursion, and what is said of the others."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.config import rules_file
from adapter.model.objects.resources import BUILTIN
from adapter.provider.rule_source import RulesFiles
from adapter.rules import lookback, parsing
from adapter.rules.compile import compile_rules

SHAPES: dict[str, Callable[[int], str]] = {
    "parentheses": lambda levels: "(" * levels + "x" + ")" * levels,
    "signs": lambda levels: "-" * levels + "x",
    "function calls": lambda levels: "abs(" * levels + "x" + ")" * levels,
    "aggregations": lambda levels: "sum(" * levels + "x" + ")" * levels,
    "subqueries": lambda levels: "rate(" * levels + "x" + "[5m:1m])" * levels,
    "a sum": lambda levels: "x" + "+x" * levels,
    "powers": lambda levels: "x" + "^x" * levels,
    "set operators": lambda levels: "x" + " OR x" * levels,
    "comparisons": lambda levels: "x" + " == x" * levels,
    "brackets that stay open": lambda levels: "(" * levels,
    "behind an argument": lambda levels: "quantile(0.5, " * levels + "x" + ")" * levels,
    "behind a backtick": lambda levels: "`\\``" + "(" * levels,
    "behind a text": lambda levels: 'x{a="("} + ' * levels + "x",
}


@pytest.mark.parametrize("levels", [150, 5_000, 100_000])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_deep_queries_are_refused_before_they_are_parsed(shape: Callable[[int], str], levels: int) -> None:
    with pytest.raises(ValueError, match=r"nest more than 100 deep|characters, more than 1,048,576"):
        parsing.parse(shape(levels))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_some_levels_are_parsed(shape: Callable[[int], str]) -> None:
    query = shape(12)
    if query.count("(") == query.count(")") or '"' in query:
        parsing.parse(query)
    else:
        with pytest.raises(ValueError, match="unclosed"):
            parsing.parse(query)


@pytest.mark.parametrize(
    "query",
    [
        "x{" + ",".join(f'a{number}="b"' for number in range(2_000)) + "}",
        "label_join(x, " + ", ".join(['"-"'] * 2_000) + ")",
        "sum by (" + ", ".join(["a"] * 2_000) + ") (x)",
        "clamp(x, 1 + 2 - 3, 4 * 5 / 6) > 0",
        'x{a="' + "(" * 5_000 + '"}',
        "x{a='\\'" + "(" * 5_000 + "'}",
        "x{a=`" + "(" * 5_000 + "`}",
        "x # " + "(" * 5_000,
        "(x) + " * 90 + "x",
    ],
)
def test_what_stands_side_by_side_is_no_depth(query: str) -> None:
    parsing.parse(query)


def test_texts_without_an_end_are_read_once() -> None:
    query = '\\"' * 100_000
    began = time.thread_time()
    assert not parsing._excess(query, query, parsing.LONGEST)
    assert time.thread_time() - began < 2  # from each quote to the end it takes minutes


def test_long_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="it has 1,048,577 characters, more than 1,048,576"):
        parsing.parse("x" * (parsing.LONGEST + 1))
    assert (
        parsing.find_excess("x" * (parsing.LONGEST_RULE + 1)) == "it has 65,537 characters, more than 65,536"
    )


def test_actions_of_a_template_are_no_operators() -> None:
    assert not parsing.find_excess("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) + " * 60 + "x")
    assert parsing.find_excess("(" * 101 + "<<.Series>>" + ")" * 101)


def test_what_a_deep_query_looks_back_is_unknown() -> None:
    query = SHAPES["parentheses"](5_000)
    assert lookback.lookback_of(query) is None


FEW = 20
"""A limit for the property below: promql-parser copies the tree at each step of a walk through it."""

LAYERS = (
    "({})",
    "-{}",
    "sum without (a, b) ({})",
    "max_over_time(({})[5m:1m])",
    "max_over_time({}[5m:1m])",
    "clamp(x, 1, {})",
    "clamp({}, 1, 2)",
    *(
        side
        for sign in ("+", "^", " and ", " unless on(a) ", " >bool ", " atan2 ")
        for side in (f"{{}}{sign}x", f"x{sign}{{}}", f"{{}}{sign}({{}})")
    ),
)
"""What encloses an expression; the last ones of a sign have it on both sides."""


def _enclose(inner: str, layers: list[tuple[str, int]]) -> str:
    """Return an expression in layers, each so many times; one that has it on both sides once."""
    for layer, times in layers:
        for _ in range(times if layer.count("{}") == 1 else 1):
            inner = layer.replace("{}", inner)
    return inner


EXPRESSIONS = st.builds(
    _enclose,
    st.sampled_from(["x", "1", 'x{a="(", b!="["}', "x offset -5m", "time()"]),
    st.lists(st.tuples(st.sampled_from(LAYERS), st.integers(1, FEW)), max_size=4),
)


def _depth(root: Any) -> int:
    depths = [0]

    def enter(_: object) -> None:
        depths.append(depths[-1] + 1)

    def leave(_: object) -> None:
        depths.append(depths[-1] - 1)

    promql.walk(root, enter, leave)
    return max(depths)


@given(EXPRESSIONS)
@example("(" * FEW + "x" + ")" * FEW + "+x")
@example("x+(" * (FEW - 5) + "x" + ")" * (FEW - 5))
@example("clamp(" + "(" * (FEW - 1) + "x" + ")" * (FEW - 1) + ", 1, 2)+x+x")
@example("(" * (FEW - 5) + "-sum without (a, b) (-max_over_time((x)[5m:1m]))" + ")" * (FEW - 5))
def test_no_tree_is_deeper_than_the_limit(query: str) -> None:
    try:
        tree = promql.parse(query)
    except ValueError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "DEEPEST", FEW)
        if _depth(tree) > FEW + 1:
            with pytest.raises(ValueError, match=f"nest more than {FEW} deep"):
                parsing.parse(query)
        elif len(query) < FEW:
            parsing.parse(query)


@given(st.text("([{}])+-x1,\"'`#\\ \n<>=!orand:.", max_size=300))
def test_any_text_ends_in_a_tree_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parsing.parse(text)


def rules_of(query: str) -> str:
    return f"rules:\n- seriesQuery: x\n  metricsQuery: '{query}'\n- seriesQuery: y\n  metricsQuery: y\n"


@pytest.mark.parametrize("key", ["rules", "externalRules"])
@pytest.mark.parametrize("levels", [5_000, 100_000])
def test_a_rule_with_a_deep_query_is_left_out(levels: int, key: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(rules_of("(" * levels + "x" + ")" * levels).replace("rules:", f"{key}:"))
    parsed = RulesFiles([str(path)]).read()
    assert not parsed.faults
    ruleset, faults = compile_rules(parsed.config, BUILTIN)
    assert len(ruleset.custom + ruleset.external) == 1
    (fault,) = faults
    assert fault.path == f"{key}[0].metricsQuery"
    assert fault.expected.startswith("expected a shorter query: it")


def test_a_deep_query_of_the_resource_rules_is_a_fault() -> None:
    queries = f"{{containerQuery: '{'(' * 500}x{')' * 500}', nodeQuery: y, containerLabel: c}}"
    text = f"resourceRules: {{cpu: {queries}, memory: {queries}}}"
    ruleset, faults = compile_rules(rules_file.parse_rules(text, "rules.yaml").config, BUILTIN)
    assert ruleset.resource is None
    assert [fault.path for fault in faults] == [
        f"resourceRules.{kind}.containerQuery" for kind in ("cpu", "memory")
    ]
