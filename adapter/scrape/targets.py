"""A pod that is scraped: what is wanted of it, what it has shown, and its answers to questions.

A body is processed in steps (`Target.steps`). The answers of the scrape before stay in force until the last
step puts the new ones in their place, so a reader never sees a part of a scrape.
"""

from collections.abc import Generator, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from adapter.errors import ExposureLimitError
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.registry import namespace_label
from adapter.rules.resource import PODS
from adapter.rules.scrape import exposition
from adapter.rules.scrape.pod_query import Identity, PodValue
from adapter.rules.scrape.series import KEPT_SERIES, PodSeries, Selections
from adapter.scrape.http import Body, Endpoint
from adapter.scrape.turns import Job

ANSWERS_KEPT = 64
"""Questions whose answers are kept for a pod: one for each metric and metric selector that is asked about."""

ANSWERED_SECONDS = 60.0
"""A question is answered with each scrape until it has not been asked for this long."""

MOST_MATCHERS = 32
"""A question with more matchers is not kept."""

POD_BYTES = 12 * 1024 * 1024
"""Estimated bytes of the series that are kept of one pod."""


class Source(NamedTuple):
    """What answers a metric, as far as scrapes go."""

    rule: Rule
    series: str


Key: TypeAlias = tuple[str, str, int]
"""Namespace and name of a pod, and the number that stands for the access it is scraped with."""

Question: TypeAlias = tuple[Source, tuple[Matcher, ...]]
"""What a value answers: a metric, and the matchers of a metric selector."""


@dataclass(slots=True)
class Answer:
    """The value of a pod as of its last good scrape; `shown`: whether that shows a series of the metric.

    A question that has been asked and is not answered yet is `pending`. `asked` is when it was asked last
    (monotonic seconds).
    """

    value: PodValue | None = None
    shown: bool = False
    pending: bool = True
    asked: float = 0.0


class Scrape(NamedTuple):
    """A body and when it was asked for (monotonic, time of day); `stretch` multiplies the windows of rules."""

    body: Body
    time: float
    wall: float
    stretch: float


@dataclass(slots=True, eq=False)
class Target:
    """A pod that is scraped. While `busy`, `series` is in the middle of a scrape; all else is of the last one."""

    key: Key
    endpoint: Endpoint
    wanted: dict[str, set[Hashable]] = field(default_factory=dict)  # metric -> owners
    series: PodSeries = field(default_factory=PodSeries)
    names: frozenset[str] = frozenset()
    selections: Selections | None = None
    keep: float = 0.0  # seconds of samples that its rates are taken over
    answers: dict[Question, Answer] = field(default_factory=dict)
    scrapes: int = 0
    time: float = 0.0
    failed: bool = False
    reason: str = ""  # of the failure
    slowed: float = 1.0  # its interval is multiplied by this, for its scrapes cost too much time
    job: Job | None = None
    busy: bool = False
    gone: bool = False

    @property
    def namespace(self) -> str:
        """Return where the pod is."""
        return self.key[0]

    def reset(self, reason: str) -> None:
        """Drop the series: none of them may be missing in a sum."""
        self.series = PodSeries()
        self.failed = True
        self.reason = reason

    def can_answer(self) -> bool:
        """Whether the series are those of the last good scrape."""
        return not self.busy and self.series.scrapes == self.scrapes

    def cost(self, question: Question) -> int:
        """Return how much work an answer is: series and matchers to look at."""
        selector = question[1]
        texts = sum(len(each.value) for each in selector if each.operator.endswith("~"))
        return self.series.count * (1 + len(selector)) + texts

    def find(self, question: Question, stretch: float) -> Answer:
        """Return the answer to a question at once."""
        steps = self.answer_steps(question, stretch)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                found: Answer = ended.value
                return found

    def put(self, question: Question, answer: Answer) -> None:
        """Keep an answer until the next scrape."""
        if len(question[1]) > MOST_MATCHERS:
            return
        if len(self.answers) >= ANSWERS_KEPT and question not in self.answers:
            del self.answers[min(self.answers, key=lambda each: self.answers[each].asked)]
        self.answers[question] = answer

    def answer_steps(self, question: Question, stretch: float) -> Generator[None, None, Answer]:
        """Work out the answer to a question, in steps."""
        (rule, series), selector = question
        query, config = rule.pod_query, rule.config.scrape
        assert query is not None, "only metrics of rules that scrape are asked about"
        assert config is not None, "as above"
        namespace, name, _ = self.key
        identity = Identity(namespace, name, namespace_label(rule) or "", rule.converter.label_for(PODS))
        value = yield from query.steps(self.series, series, identity, selector, config.window * stretch)
        return Answer(value, self.series.shows(query.series_names(series)), pending=False)

    def steps(self, scrape: Scrape) -> Generator[None, None, None]:
        """Take in a scrape. Raises ExpositionError; then nothing of the scrape counts."""
        body, time, wall, stretch = scrape
        samples: list[exposition.Exposed] = []
        limit = self.endpoint.access.max_series
        yield from exposition.read(
            body.content, self.names, samples, openmetrics=body.openmetrics, limit=limit
        )
        self.busy = True
        for _ in self.series.record_steps(
            samples, time, wall, self.keep * stretch, most=KEPT_SERIES * limit, selections=self.selections
        ):
            if self.series.size > POD_BYTES:
                raise ExposureLimitError(f"the series of the pod take more than {POD_BYTES} bytes")
            yield
        recent = [
            (each, old.asked) for each, old in self.answers.items() if time - old.asked <= ANSWERED_SECONDS
        ]
        answers: dict[Question, Answer] = {}
        for question, asked in recent:
            found = yield from self.answer_steps(question, stretch)
            found.asked = asked
            answers[question] = found
        for question, asked_meanwhile in self.answers.items():
            if asked_meanwhile.pending:
                answers.setdefault(question, asked_meanwhile)
        self.answers = answers
        self.scrapes, self.time = self.series.scrapes, time
        self.failed, self.reason, self.busy = False, "", False
