"""What the steps of `fastpath check --why` share.

Whom to ask, the story so far, and how an answer is told.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adapter.cli.check import empty, report
from adapter.errors import PrometheusError
from adapter.model import timestamps
from adapter.model.metrics import QueryResult, Sample
from adapter.rules import trace
from adapter.rules.trace import Lists, counted, listed

if TYPE_CHECKING:
    from adapter.cli.check.servers import ClusterReader, PrometheusReader

SHOWN_VALUES = 5


@dataclass(slots=True)
class Story:
    """What was found about a metric, in sections, and the sentence at the end.

    `served`: an autoscaler that asks for it gets a value. `unreachable`: the servers that could not be asked.
    """

    metric: str
    sections: list[tuple[str, list[str]]] = field(default_factory=list)
    conclusion: str = ""
    served: bool = False
    unreachable: list[str] = field(default_factory=list)

    def section(self, title: str) -> list[str]:
        """Begin a section and return its lines, to add to."""
        lines: list[str] = []
        self.sections.append((title, lines))
        return lines

    def text(self) -> str:
        """Return it for people."""
        blocks = ["\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in self.sections]
        return "\n\n".join([*blocks, self.conclusion]) + "\n"

    def document(self) -> dict[str, Any]:
        """Return it for programs."""
        steps = [
            {"title": title, "lines": [line.strip() for line in lines]} for title, lines in self.sections
        ]
        return {"metric": self.metric, "steps": steps, "served": self.served, "conclusion": self.conclusion}


@dataclass(frozen=True, slots=True)
class Inquiry:
    """One look at one metric.

    `lists` are the series of every rule's selector; `cluster` is None without one to ask.
    """

    prometheus: "PrometheusReader"
    cluster: "ClusterReader | None"
    story: Story
    lists: Lists

    @property
    def look_back(self) -> str:
        """How far back series were looked for, as people write it."""
        return timestamps.format_go_duration(self.prometheus.look_back)

    def labels(self, selector: str, series: str) -> frozenset[str]:
        """Return the labels of one series name among those of a selector."""
        known = self.lists[selector]
        return frozenset() if isinstance(known, PrometheusError) else trace.label_names(known, series)

    async def ask(self, lines: list[str], promql: str, *, accepts_warnings: bool) -> QueryResult | None:
        """Return the answer to the API's own query; without one, conclude with the reason.

        `accepts_warnings` says that the rule takes an answer with warnings, which else counts as no answer.
        """
        lines.append(f"asks {report.one_line(promql)}")
        result = await self.prometheus.ask(promql)
        if isinstance(result, PrometheusError):
            lines.append(f"refused: {result}")
            self.story.conclusion = empty.refused(result)
            if result.kind not in empty.OF_THE_QUERY:
                self.story.unreachable.append(f"Prometheus cannot be asked: {result}")
            return None
        lines.append(counted(len(result.samples), "sample", "samples"))
        lines.extend(f"warning: {text}" for text in result.warnings)
        if result.warnings and not accepts_warnings:
            self.story.conclusion = empty.partial(result.warnings[0])
            return None
        return result

    async def follow(
        self,
        lines: list[str],
        promql: str,
        show: Callable[[Sample], str] = lambda sample: report.show_sample(sample, ""),
    ) -> Sequence[Sample]:
        """Return the samples of a query that only looks for a cause; an error is told and counts as none."""
        lines.append(f"also asks {promql}")
        result = await self.prometheus.ask(promql)
        if isinstance(result, PrometheusError):
            lines.append(f"refused: {result}")
            return ()
        lines.append(listed(map(show, result.samples)) or "no sample")
        return result.samples
