"""What is known in a story of the loop."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec

from adapter.autoscaler.explain import debug
from adapter.model import steps
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.floor import floor_of
from adapter.model.autoscaling.view import AutoscalerView, FleetView
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import METRICS
from tests.autoscaler.looped import HPA, OWN, LoopBench
from tests.support.controller import shown_document
from tests.support.scaling import NOW

SCHEMA = json.loads(Path("docs/reference/debug.schema.json").read_text())


class LoopFacts:
    """What a line of a script asks for of the only autoscaler, unless it is said otherwise."""

    def __init__(self) -> None:
        self.bench = LoopBench()

    def defects(self) -> str:
        value = self.bench.monitoring.registry.get_sample_value
        return f"{value('fastpath_scaler_unexpected_errors_total') or 0:g}"

    def condition(self, kind: str) -> str:
        found = statuses.find(self.bench.last().status.conditions, kind)
        return "none" if found is None else f"{found.status} {found.reason}: {found.message}"

    def last(self) -> str:
        made = self.bench.last()
        return f"{made.status.current_replicas} of {made.status.desired_replicas}"

    def trace(self) -> list[str]:
        return [step.text() for step in self.bench.last().trace]

    def status(self) -> str:
        if not self.bench.server.statuses:
            return "none"
        _, status, changes = self.bench.server.statuses[-1]
        made = " ".join(f"{each.change:+}" for each in changes) or "no changes"
        return f"{status.current_replicas} of {status.desired_replicas}, {made}"

    def changes(self) -> str:
        """Return the changes that policies count, and how many seconds ago they were."""
        history, now = self.bench.state.memory.history, self.bench.controller.loop.clock.now()
        signed = [("+", each) for each in history.ups] + [("-", each) for each in history.downs]
        found = (f"{sign}{each.change} {(now - each.at) / SECOND:g} s ago" for sign, each in signed)
        return ", ".join(found) or "none"

    def ours(self) -> str:
        """Return the write of ours that another client may take back."""
        ours = self.bench.state.memory.conflicts.ours
        return "none" if ours is None else f"{ours[0]} to {ours[1]}"

    def error(self) -> str:
        return self.bench.last().error or "none"

    def given_back(self) -> str:
        return str(self.bench.server.given_back)

    def reversals(self) -> str:
        return str(len(self.bench.state.memory.conflicts.reversals + self.bench.state.memory.boost.reversals))

    def journal(self) -> list[str]:
        return [
            f"{entry.current} to {entry.replicas}: {entry.outcome}"
            + (f", {entry.change.replicas:+} by {entry.change.by}" if entry.change is not None else "")
            for entry in self.bench.journal.of(self.bench.state.key)
        ] or ["nothing"]

    def sources(self) -> str:
        """Return how often each was read, and which are closed."""
        return " ".join(
            f"{source.reads} closed" if source.closed else f"{source.reads}"
            for source in self.bench.sources.opened
        )

    def followed(self) -> str:
        """Return how many selections of pods are followed."""
        return str(sum(not following.closed for following in self.bench.pods.followings))

    def failures(self) -> str:
        return str(self.bench.state.turn.failures)

    def decisions(self) -> str:
        return f"{self.bench.monitoring.registry.get_sample_value('fastpath_scaler_lag_seconds_count'):g}"

    def metric(self, name: str, *more: str) -> str:
        key = OWN if self.bench.controller.find(OWN) is not None else HPA
        labels = {"kind": key.kind, "namespace": "default", "name": "web"}
        labels |= dict(each.split("=") for each in more)
        value = self.bench.monitoring.registry.get_sample_value(f"fastpath_autoscaler_{name}", labels)
        return "none" if value is None else f"{value:.12g}"

    def shown(self, path: str) -> str:
        """Return a part of the document of the autoscaler, or that its schema does not allow it."""
        document = shown_document(self.bench.controller)
        msgspec.convert(document, AutoscalerView)
        return self._part(document, path)

    def fleet(self, *names: str) -> str:
        """Return some of what a line of the fleet says."""
        answer = steps.run(debug.show_fleet(self.bench.controller, NOW / SECOND))
        msgspec.json.decode(answer.body, type=FleetView)
        line = json.loads(self._part(json.loads(answer.body), "autoscalers.0"))
        return json.dumps({name: line[name] for name in names})

    @staticmethod
    def _part(document: Any, path: str) -> str:
        jsonschema.validate(document, SCHEMA)
        for step in path.split("."):
            document = document[int(step) if step.lstrip("-").isdigit() else step]
        return json.dumps(document)

    def total(self, name: str, *more: str) -> str:
        """Return a metric of the scaler."""
        labels = dict(each.split("=") for each in more)
        return f"{self.bench.monitoring.registry.get_sample_value(f'fastpath_scaler_{name}', labels):g}"

    def series(self) -> str:
        """Return how many series of autoscalers there are."""
        names = tuple(row.name for row in METRICS if "name" in row.labels)
        lines = self.bench.monitoring.exposition().splitlines()
        return str(sum(line.startswith(names) for line in lines))

    def credits(self) -> str:
        return ", ".join(f"{each.metric} {each.credit}" for each in self.bench.server.credited)

    def floor(self) -> str:
        """Return what is published, and until how many seconds after the beginning."""
        entry = self.bench.floors.entries.get("uid-1")
        if entry is None:
            return "none"
        now = round(self.bench.clock.wall() * SECOND)
        ends = {
            f"{name} {count} for {(until - now) / SECOND:g} s": count
            for name, count, until in (
                ("raise", entry.replicas, entry.until),
                ("schedule", entry.scheduled, entry.scheduled_until),
                ("forecast", entry.forecast, entry.forecast_until),
            )
        }
        parts = [text for text, count in ends.items() if count]
        parts += ["stands"] * (entry.stands and entry.replicas > 0)
        if entry.demoted is not None:
            parts.append(f"demoted by {entry.demoted.by}")
        return f"{floor_of(entry, now, 100)}: {', '.join(parts) or 'nothing'}"
