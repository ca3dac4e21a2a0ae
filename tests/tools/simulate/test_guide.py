"""The guides of simulations and forecasts show what the commands print."""

import pytest

from scripts.generate import simulated_guide
from scripts.generate.simulated_guide import Block

BLOCKS = list(simulated_guide.blocks())
UPDATE = "run python -m scripts.generate.simulated_guide"


def test_the_guides_have_what_they_are_about() -> None:
    assert [block.command.split()[-1] for block in BLOCKS] == [
        "40s",
        "simulate.svg",
        "--suggest",
        "2026-11-23T09:00:00Z",
        "0.6",
        "'shortage<=50%,pods<=102%'",
        "2026-11-09T00:00:00+01:00",
        "forecast.svg",
        "--forecast",
    ]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            block,
            marks=[pytest.mark.thorough, pytest.mark.timeout(600)]
            if block.takes_long
            else [pytest.mark.timeout(120)],
            id=f"{block.page.file.stem}-{block.command.split()[-1]}",
        )
        for block in BLOCKS
    ],
)
def test_commands_print_what_the_guide_shows(block: Block) -> None:
    printed = block.run()
    if block.picture is None:
        assert block.output == printed, UPDATE
    else:
        assert block.output == ""
        assert block.picture.read_text() == printed, UPDATE
