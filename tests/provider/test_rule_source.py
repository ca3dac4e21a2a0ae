"""The rules in force after an error that no code expects."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.config.rules_config import RulesConfig
from adapter.model.objects.resources import BUILTIN, Catalogue
from adapter.provider.rule_source import RulesFiles, RuleSource
from adapter.rules import compile as compiler
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock
from tests.support.waiting import running, until

RULE = """
rules:
- seriesQuery: load{pod!=""}
  resources: {template: <<.Resource>>}
  metricsQuery: %s
"""


async def test_a_defect_in_changed_rules_leaves_the_old_ones_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULE % "good")
    monitoring, clock = Monitoring(), FakeClock()
    turns: asyncio.Queue[None] = asyncio.Queue()

    def defects() -> float | None:
        return monitoring.registry.get_sample_value("fastpath_scaler_unexpected_errors_total")

    compile_rules = compiler.compile_rules

    async def refresh() -> Catalogue:
        return BUILTIN

    async def adopt(_: object) -> None:
        """Take the rules."""

    async def sleep(_: float) -> None:
        await turns.get()

    def breaks(config: RulesConfig, *rest: Any) -> Any:
        return 1 // 0 if config.rules[0].metrics_query == "bad" else compile_rules(config, *rest)

    monkeypatch.setattr(compiler, "compile_rules", breaks)
    files, adopted = RulesFiles([str(path)]), []
    resources: Any = SimpleNamespace(refresh=refresh, current=lambda: BUILTIN)
    relister: Any = SimpleNamespace(adopt=adopt)
    source = RuleSource(
        files,
        files.read(),
        resources,
        relister,
        clock,
        monitoring,
        ProblemLog(monitoring, clock),
        strict=False,
        adopted=lambda config: adopted.append(config.rules[0].metrics_query),
        sleep=sleep,
    )
    async with running(source.run()):
        await until(lambda: adopted)
        path.write_text(RULE % "bad")
        turns.put_nowait(None)
        await until(lambda: defects() == 1)
        path.write_text(RULE % "better")
        turns.put_nowait(None)
        await until(lambda: len(adopted) == 2)

    assert adopted == ["good", "better"]
    assert defects() == 1
