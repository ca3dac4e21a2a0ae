"""All bounds together are below the manifests' limits: a process with all caches full is not killed."""

import dataclasses

import pytest

from adapter.telemetry.server_metrics import CACHES
from scripts.generate import memory
from scripts.generate.memory import MemoryOfContainer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def processes() -> dict[str, MemoryOfContainer]:
    return {each.name: each for each in memory.processes()}


@pytest.mark.parametrize(
    "name", ["`base`", "`single-replica`", "`scaler`", "`scaler-service-monitor`", "`scaler-in-process`"]
)
def test_the_sum_is_below_the_limit(name: str, processes: dict[str, MemoryOfContainer]) -> None:
    process = processes[name]
    rows = {bound.what: round(bound.bytes / memory.MIB) for bound in memory.bounds(process)}
    assert memory.total(process) <= process.limit, rows


def test_a_process_that_does_both_counts_both(processes: dict[str, MemoryOfContainer]) -> None:
    parts = [{bound.what for bound in memory.bounds(processes[name])} for name in ("`base`", "`scaler`")]
    assert {bound.what for bound in memory.bounds(processes["`scaler-in-process`"])} == parts[0] | parts[1]


def test_every_cache_is_counted(processes: dict[str, MemoryOfContainer]) -> None:
    named = " ".join(bound.what for bound in memory.bounds(processes["`base`"]))
    assert [cache for cache in CACHES.split() if f"`{cache}`" not in named] == []


def test_a_setting_is_counted_as_it_is_given(processes: dict[str, MemoryOfContainer]) -> None:
    process = processes["`base`"]
    larger = dataclasses.replace(process.options, discovery_max_bytes=2 * process.options.discovery_max_bytes)
    grown = memory.total(dataclasses.replace(process, options=larger)) - memory.total(process)
    assert round(grown) == process.options.discovery_max_bytes


def test_the_page_shows_the_sum() -> None:
    page = memory.PAGE.read_text()
    assert memory.replace_table(page, memory.render_table(memory.processes())) == page
