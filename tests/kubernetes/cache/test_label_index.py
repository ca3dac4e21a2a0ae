"""The index answers as a scan over all objects would, in the API server's order."""

from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from adapter.kubernetes.cache import label_index
from adapter.kubernetes.cache.label_index import LabelIndex
from adapter.model.objects.label_selectors import (
    EVERYTHING,
    LabelSelector,
    Operator,
    Requirement,
    parse_selector,
)
from adapter.telemetry.metrics import Monitoring

NAMESPACES = ["a", "a-b", "ab", ""]
NAMES = ["x", "x-1", "x-2", "x.y", "y", *(f"n{number}" for number in range(40))]
KEYS = ["app", "env", "level"]
VALUES = ["", "a", "b", "1", "2"]

LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)
PAIRED = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from([Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS]),
    st.tuples(st.sampled_from(VALUES)),
)
SETS = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.sets(st.sampled_from(VALUES), min_size=1).map(lambda values: tuple(sorted(values))),
)
EXISTENCE = st.tuples(
    st.sampled_from(KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST]), st.just(())
)
NUMBERS = st.tuples(
    st.sampled_from(KEYS), st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]), st.just(("1",))
)
SELECTORS = st.lists(
    st.one_of(PAIRED, SETS, EXISTENCE, NUMBERS).map(lambda parts: Requirement(*parts)), max_size=3
).map(lambda requirements: LabelSelector(tuple(sorted(requirements, key=lambda each: each.key))))


def scan(
    objects: Mapping[tuple[str, str], Mapping[str, str]], namespace: str | None, selector: LabelSelector
) -> tuple[str, ...]:
    found = [
        key for key, labels in objects.items() if namespace in {None, key[0]} and selector.matches(labels)
    ]
    return tuple(name for _, name in sorted(found, key="/".join))


class StoreMachine(RuleBasedStateMachine):
    """Any sequence of events, with questions between them, also where two names are many."""

    questions = Bundle("questions")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.store = LabelIndex()
        self.objects: dict[tuple[str, str], Mapping[str, str]] = {}

    @initialize(few=st.sampled_from([1, label_index.FEW]), step=st.sampled_from([1, label_index.STEP]))
    def begin(self, few: int, step: int) -> None:
        self.patch.setattr(label_index, "FEW", few)
        self.patch.setattr(label_index, "STEP", step)

    def teardown(self) -> None:
        self.patch.undo()

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from(NAMES), labels=LABELS)
    def put(self, namespace: str, name: str, labels: dict[str, str]) -> None:
        self.store.put(namespace, name, labels)
        self.objects[namespace, name] = labels

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        labels=LABELS,
        names=st.sets(st.sampled_from(NAMES), max_size=40),
    )
    def put_alike(self, namespace: str, labels: dict[str, str], names: set[str]) -> None:
        for name in names:
            self.put(namespace, name, labels)

    @rule(namespace=st.sampled_from(NAMESPACES), names=st.sets(st.sampled_from(NAMES), max_size=40))
    def remove(self, namespace: str, names: set[str]) -> None:
        for name in names:
            self.store.remove(namespace, name)
            self.objects.pop((namespace, name), None)

    @rule(target=questions, namespace=st.sampled_from([None, *NAMESPACES]), selector=SELECTORS)
    def ask(self, namespace: str | None, selector: LabelSelector) -> tuple[str | None, LabelSelector]:
        assert self.store.names(namespace, selector) == scan(self.objects, namespace, selector)
        return namespace, selector

    @rule(question=questions)
    def ask_again(self, question: tuple[str | None, LabelSelector]) -> None:
        assert self.store.names(*question) == scan(self.objects, *question)

    @invariant()
    def size(self) -> None:
        assert self.store.count() == len(self.objects)
        listed = {(namespace, name) for namespace, names in self.store.listing("") for name in names}
        assert listed == set(self.objects)


StoreMachine.TestCase.settings = settings(stateful_step_count=20, max_examples=75)
TestStore = pytest.mark.timeout(30)(StoreMachine.TestCase)  # thousands of steps, each of them quick


def test_unchanged_answers_are_not_computed_again() -> None:
    store = LabelIndex()
    store.put("a", "x", {"app": "a"})
    selector = parse_selector("app=a")
    assert store.names("a", selector) == ("x",)
    assert store.known("a", selector) is None, "most selectors of a flood come once"
    first = store.names("a", selector)
    assert store.known("a", selector) is first
    store.put("a", "x", {"app": "a"})  # as every status update of a pod does
    store.put("b", "x", {"app": "a"})
    assert store.known("a", selector) is first
    store.put("a", "y", {"app": "a"})
    assert store.known("a", selector) is None
    assert store.names("a", selector) == ("x", "y")


def test_remembered_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_index, "ANSWERS_BYTES", 2112)
    monkeypatch.setattr(label_index, "NAME_BYTES", 100)
    monitoring = Monitoring()
    store = LabelIndex(monitoring)
    for number in range(20):
        store.put("a", f"{number:02}", {"app": str(number % 2)})
    for _ in range(2):
        assert len(store.names("a", EVERYTHING)) == 20
    assert store.known("a", EVERYTHING) is None
    for text in ("app=0", "app", "app=1", "!app"):
        assert store.names("a", parse_selector(text)) == store.names("a", parse_selector(text))
    used = monitoring.registry.get_sample_value("fastpath_cache_used_ratio", {"cache": "selections"})
    assert used is not None
    assert 0 < used <= 1
    evicted = monitoring.registry.get_sample_value("fastpath_cache_evictions_total", {"cache": "selections"})
    assert evicted == 2, "two of them have room at a time"


def test_endless_large_selectors_that_select_nothing_are_bounded() -> None:
    """A selector takes many times the room of its text, whatever it selects."""
    monitoring = Monitoring()
    store = LabelIndex(monitoring)
    store.put("a", "x", {"app": "x"})
    (requirement,) = parse_selector(
        f"app in ({','.join(f'v{number}' for number in range(1000))})"
    ).requirements
    large = LabelSelector((requirement,))
    assert large.weight > 10 * len(str(large))
    fit = label_index.ANSWERS_BYTES // (label_index.ANSWER_BYTES + large.weight)
    for number in range(fit + 20):
        for _ in range(2):
            assert store.names("a", LabelSelector((requirement._replace(key=f"k{number}"),))) == ()
    kept = monitoring.registry.get_sample_value("fastpath_cache_entries", {"cache": "selections"})
    assert kept is not None
    assert fit - 5 < kept <= fit


def test_a_change_between_two_steps_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_index, "STEP", 1)
    store = LabelIndex()
    for number in range(10):
        store.put("a", f"n{number}", {"app": "a", "number": str(number)})
    selector = parse_selector("app=a")
    assert len(store.names("a", selector)) == 10  # from the second time on the answer is kept
    steps = store.select("a", selector)
    for number in (3, 7):
        next(steps)
        store.remove("a", f"n{number}")
        store.put("a", f"m{number}", {"app": "a"})
    found: tuple[str, ...] = ()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
    stayed = {f"n{number}" for number in range(10) if number not in {3, 7}}
    assert stayed <= set(found) <= stayed | {"n3", "n7", "m3", "m7"}
    assert store.known("a", selector) is None
    assert set(store.names("a", selector)) == stayed | {"m3", "m7"}


def test_labels_and_namespaces() -> None:
    store = LabelIndex()
    store.put("b", "x", {"app": "web"})
    store.put("a", "x", None)
    assert store.namespaces() == ["a", "b"]
    assert store.labels("b", "x") == {"app": "web"}
    assert store.labels("a", "x") == {}
    assert store.labels("a", "y") is None
    assert store.labels("c", "x") is None
