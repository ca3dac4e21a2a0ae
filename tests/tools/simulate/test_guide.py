"""The guides of simulations and forecasts show what the commands print."""

from collections.abc import Iterator
from typing import Any

import pytest

from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.simulation import PolicyResult
from fastpath_tools.simulate import running
from scripts.generate import simulated_guide
from scripts.generate.simulated_guide import Block

BLOCKS = sorted(simulated_guide.blocks(), key=lambda block: block.picture is None)
"""Those with a picture first: what is recorded for one is known to the others."""
UPDATE = "run python -m scripts.generate.simulated_guide"


@pytest.fixture(scope="module", autouse=True)
def _known() -> Iterator[None]:
    """Run each simulation once, in this process; several commands have the same ones."""
    known: dict[str, PolicyResult] = {}
    simulate = simulation.simulate

    def run(*given: Any, observer: Any = None) -> PolicyResult:
        key = repr(given)
        if observer is not None or key not in known:
            known[key] = simulate(*given, observer=observer)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "simulate", run)
        patch.setattr(running, "WORTH", 10**12)
        yield


def test_the_guides_have_what_they_are_about() -> None:
    assert [block.command.split()[-1] for block in simulated_guide.blocks()] == [
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
