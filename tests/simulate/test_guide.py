"""The guide shows what the commands print."""

import pytest

from tests.support import simulated_guide
from tests.support.simulated_guide import Block

BLOCKS = list(simulated_guide.blocks())
UPDATE = "run python -m tests.support.simulated_guide"


def test_the_guide_has_a_table_a_picture_suggestions_a_schedule_and_a_budget() -> None:
    assert [block.command.split()[-1] for block in BLOCKS] == [
        "40s",
        "simulate.svg",
        "--suggest",
        "2026-11-23T09:00:00Z",
        "'shortage<=50%,pods<=102%'",
    ]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            block,
            marks=[pytest.mark.thorough, pytest.mark.timeout(600)] if block.takes_long else [],
            id=block.command.split()[-1],
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
