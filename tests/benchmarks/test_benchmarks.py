"""The benchmarks run, at small sizes, and the pages and pictures show the figures of the results."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import clients_figures, load, page, paths, peer, plot, suite
from benchmarks.stage import Stage
from tests.support import tools

_ROOT = Path(__file__).parents[2]
_PEER_FIGURES = tuple(f"{form}_" for form in peer.FORMS)
_SHORT = [name for name, case in suite.CASES.items() if not case.long]

# Figures that do not depend on the machine, by benchmark.
_COUNTED = {
    "hpas": {"one_rule_requests_per_second": 20, "several_rules_requests_per_second": 20},
    "reaction": {"unwritten": 0, "boosted_reversals": 0},
}

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def _bench(*arguments: str, peer_program: Path | str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.suite", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {peer.VARIABLE: str(peer_program)},
    )


def _program(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, suite.Entry]:
    """What one run of the whole suite found, ourselves in the peer's place: we take every flag it takes."""
    tools.require("prometheus", "prometheus")
    directory = tmp_path_factory.mktemp("tiny")
    program = _program(directory / "peer", f'PYTHONPATH={_ROOT} exec {sys.executable} -m adapter serve "$@"')
    results = directory / "results.json"
    suite.write(results, {"another": {"kept": True}})

    done = _bench("--tiny", "--results", str(results), peer_program=program)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    entries = suite.read(results)
    assert entries.pop("another") == {"kept": True}
    assert "\ngoals\n" in done.stdout
    return entries


@pytest.mark.thorough
@pytest.mark.parametrize("name", _SHORT)
def test_gives_figures_for_its_goals(tiny: Mapping[str, suite.Entry], name: str) -> None:
    entry = tiny[name]

    assert entry["benchmark"] == name
    assert {"cpu", "cores", "load", "python", "aiohttp"} <= entry["machine"].keys()
    assert entry["time"].endswith("+00:00")
    assert entry["goals"]
    assert entry["goals"].keys() <= entry["figures"].keys()
    assert all(math.isfinite(value) for value in entry["figures"].values())
    assert _COUNTED.get(name, {}).items() <= entry["figures"].items()


@pytest.mark.thorough
@pytest.mark.parametrize("name", _SHORT)
def test_the_kept_results_have_the_same_figures(tiny: Mapping[str, suite.Entry], name: str) -> None:
    kept = suite.read(suite.RESULTS)

    assert _ours(kept[name]) == _ours(tiny[name]), f"run scripts/bench {name}"


def _ours(entry: suite.Entry) -> list[str]:
    return [figure for figure in entry["figures"] if not figure.startswith(_PEER_FIGURES)]


@pytest.mark.thorough
def test_the_peer_is_asked_the_same(tiny: Mapping[str, suite.Entry]) -> None:
    made = page.render("{{ratios serve}}", tiny)

    assert made.splitlines()[0] == "| figure | Fastpath | shipped | unthrottled | Fastpath / unthrottled |"
    assert "\n| `mixed_16_p99_ms` | " in made


@pytest.mark.parametrize("path", page.TEXTS, ids=lambda path: path.name)
def test_the_pages_are_up_to_date(path: Path) -> None:
    made = page.render(path.read_text(), suite.read(suite.RESULTS))

    assert (page.FOLDER / path.stem).read_text() == made, "run python -m benchmarks.page"


@pytest.mark.parametrize("name", ["reaction", "clients"])
def test_the_pictures_are_up_to_date(name: str) -> None:
    made = plot.PICTURES[name](suite.read(suite.RESULTS)[name])
    assert plot.path_of(name).read_text() == made, f"run python -m benchmarks.plot {name}"


def test_other_pages_have_the_figures_of_the_results() -> None:
    figures = suite.read(suite.RESULTS)["reaction"]["figures"]
    pages = {
        name: " ".join((_ROOT / name).read_text().split())
        for name in ("README.md", "docs/concepts.md", "docs/guides/fast-scaler.md")
    }
    median = {
        case: figures[f"{case}_p50_seconds"] for case in ("gauge", "boosted", "native", "prometheus_slow")
    }
    longest = {case: figures[f"{case}_max_seconds"] for case in median}

    for case, digits in (("gauge", 1), ("boosted", 1), ("native", 0)):
        assert f"| {median[case]:.{digits}f} s | {longest[case]:.{digits}f} s |" in pages["README.md"], case
    clients = suite.read(suite.RESULTS)["clients"]["figures"]
    for twin in clients_figures.TWINS:
        slow, failed = (100 * clients[f"step_{twin}_{share}_share"] for share in ("slow", "failed"))
        row = f"| {slow:.0f} % | {failed:.0f} % | {clients[f'step_{twin}_p99_seconds']:.0f} s |"
        assert row in pages["README.md"], twin
    assert (
        f"On a ramp of 30 s, {100 * clients['ramp_native_slow_share']:.0f} % are slow" in pages["README.md"]
    )
    native = f"after {median['native']:.0f} s at the median and after {longest['native']:.0f} s at most"
    assert native in pages["docs/concepts.md"]
    cells = [
        f"{median['native']:.0f} s (Prometheus",
        f"{median['boosted']:.1f} s (scraped",
        f"{median['gauge']:.1f} s (scraped",
    ]
    assert [cell for cell in cells if f"| {cell}" not in pages["docs/concepts.md"]] == []
    assert f"comes {median['gauge']:.1f} s after the load step" in pages["docs/guides/fast-scaler.md"]
    assert f"and {median['prometheus_slow']:.0f} s after it" in pages["docs/guides/fast-scaler.md"]


@pytest.mark.parametrize(
    "name", ["versus serve.none", "serve.none", "serve.settings", "ratios none", "serve.share:nonsense", ""]
)
def test_an_unknown_placeholder_is_named(name: str) -> None:
    with pytest.raises(page.UnknownError) as caught:
        page.render(
            f"before {{{{{name}}}}}", {"serve": {"figures": {"share": 0.4}, "settings": {"hpas": 200}}}
        )

    assert str(caught.value).startswith(f"{{{{{name}}}}}: ")


def test_one_that_fails_is_named_and_the_others_run(tmp_path: Path) -> None:
    tools.require("prometheus", "prometheus")
    program = _program(tmp_path / "peer", "echo no such flag >&2", "exit 3")
    results = tmp_path / "results.json"
    suite.write(results, {"serve": {"of": "an earlier run"}})

    done = _bench("serve", "tick", "--tiny", "--results", str(results), peer_program=program)

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        (
            f"serve: {peer.VARIABLE}={program}: it ended with exit status 3 before it was ready; it said "
            "last: no such flag"
        ),
        "scripts/bench: failed: serve",
    ]
    entries = suite.read(results)
    assert entries["serve"] == {"of": "an earlier run"}
    assert entries["tick"]["figures"]["tick_steady_seconds"] > 0


def test_a_peer_that_is_no_program_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    for path, why in ((tmp_path / "none", "there is no such file"), (plain, "the file is not executable")):
        done = _bench("tick", "--tiny", peer_program=path)

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"scripts/bench: {peer.VARIABLE}={path}: {why}; expected ")


def test_with_arguments_of_its_own_a_benchmark_only_prints() -> None:
    before = suite.RESULTS.read_bytes()

    done = _bench("tick", "--autoscalers", "2", "--pods", "2", "--ticks", "1", "--runs", "1")

    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["settings"]["autoscalers"] == 2
    assert suite.RESULTS.read_bytes() == before


def test_every_benchmark_is_listed_and_others_are_refused() -> None:
    told = _bench("--help").stdout
    refused = _bench("tick", "nonsense")

    for name in suite.CASES:
        assert f"\n  {name} " in told
        assert (_ROOT / "benchmarks" / f"{name}.py").is_file()
    assert refused.returncode == 2
    assert refused.stderr.startswith("scripts/bench: nonsense: no such benchmark; there are: serve, ")


def test_wrk_asks_for_the_paths_over_tls() -> None:
    if shutil.which("wrk") is None:
        pytest.skip("wrk is not installed; Debian's package wrk has it")
    assert load.generator(1.0) == "wrk"
    with Stage() as stage:
        port = stage.start_bare(b'{"kind":"MetricValueList"}\n')

        found = load.run_closed_loop(port, stage.tls, ["/a", "/b"], 2, 1.0, stage.directory, fresh="lap-1")

    assert found.errors == 0
    assert found.requests_per_second > 0
    assert 0 < found.p50_ms <= found.p99_ms


async def test_requests_take_short_paths(tmp_path: Path) -> None:
    """A longer path is a decision: then the numbers here and in docs/contributing/paths.md change with it."""
    walks = await paths.walk_requests(tmp_path, 6)
    warm, cold = (walks[name].counts() for name in ("warm", "cold"))
    assert ("server/http/handler.py", "Handler.answer") in walks["warm"].calls
    assert ("prometheus/client.py", "PrometheusClient.query") in walks["cold"].calls
    assert warm["functions"] <= 28, walks["warm"].calls
    assert warm["calls"] <= 28
    assert cold["functions"] <= 183, walks["cold"].calls
    assert cold["calls"] <= 255
    scrape = await paths.walk_scrapes(tmp_path, 4)
    assert ("kubernetes/write/scale.py", "ScaleWriter.put_scale") in scrape.calls
    assert scrape.counts()["functions"] <= 240
    assert scrape.counts()["calls"] <= 340
