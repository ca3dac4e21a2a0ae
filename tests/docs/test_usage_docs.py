"""The page on the pods' own usage has the reasons and numbers of the code, and its autoscalers are taken."""

import re
from pathlib import Path

import pytest
import yaml

from adapter.autoscaler.usage import calibration as calibrations
from adapter.autoscaler.usage import noise, source
from adapter.autoscaler.usage.calibration import Calibration
from adapter.cli import main
from adapter.model.autoscaling import documents
from tests.autoscaler.inputs.sources_bench import CONTAINER
from tests.autoscaler.usage.test_source import servers
from tests.support import rendered
from tests.support.rendered import ROOT

PAGE = (ROOT / "docs" / "guides" / "fast-cpu.md").read_text()
API = (ROOT / "docs" / "reference" / "api.md").read_text()
COUNTER = "resourceRules.cpu.scrape"
ROWS = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    "ratios",
    [(1.0,) * 2, (3.0,) * 3, (1.4,) * 3, (1 / 1.3,) * 3, (1.2, 2.5, 3.9)],
    ids=lambda each: str(each[0]),
)
def test_reasons_and_sentences_are_those_of_the_code(ratios: tuple[float, ...]) -> None:
    _, reason, why = calibrations.judge(Calibration(ratios), COUNTER)

    assert (reason, why) in ROWS


async def test_a_counter_that_is_not_exposed_is_on_the_page() -> None:
    async with servers() as pods:
        pods.hidden = set("abc")
        await pods.run(5)
        _, reason, why = pods.source.verdict

    assert (reason, why.partition(": ")[0]) in ROWS


async def test_what_is_not_compared_is_on_the_page() -> None:
    async with servers() as pods:
        pods.covered = 3600
        await pods.run(60)
    async with servers(CONTAINER, more=", container: side") as others:
        await others.run(5)

    assert {pods.source.verdict[1:], others.source.verdict[1:]} <= set(ROWS)


def test_the_api_has_the_same_reasons() -> None:
    rows = re.findall(r"^\| `FastUsage` \| (\w+) \| ([^|]*) \|", API, re.MULTILINE)
    reasons = {status: set(re.findall(r"`(\w+)`", text)) for status, text in rows}

    assert reasons == {
        "True": {calibrations.CalibrationVerdict(1.0).reason},
        "False": {reason for reason, _ in ROWS},
    }


def test_numbers_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    low, high = calibrations.BAND
    cores = source.LEAST / 1000

    assert f"from {cores:g} cores on" in text
    assert f"the last {calibrations.MOST} comparisons" in text
    assert f"there are {calibrations.FEWEST} comparisons, the ratio is from {low} to {high}" in text
    assert calibrations.CLOSE == 0.75
    assert (
        f"three quarters of the comparisons are within {calibrations.SPREAD:.0%} of it".replace("%", " %")
        in text
    )
    assert noise.QUANTILE == 0.8
    assert f"{noise.BEYOND} times what four of five neighboring rates differ by" in text
    assert source.NO_MORE in text


def test_the_hpa_is_the_autoscaler_boosted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, hpa, autoscaler = (yaml.safe_load(block) for block in rendered.blocks(PAGE, "yaml"))
    documents.read_document(autoscaler)
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(autoscaler))
    assert main.main(["convert", "--back", str(tmp_path / "web.yaml")]) == 0
    (tmp_path / "hpa.yaml").write_text(capsys.readouterr().out)
    assert main.main(["boost", str(tmp_path / "hpa.yaml")]) == 0
    (boosted,) = yaml.safe_load_all(capsys.readouterr().out)

    assert boosted == hpa
