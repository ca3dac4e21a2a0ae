"""Pages as data: `pages/autoscaler/NAME.yaml` is what a page is about, and beside it is its HTML.

That of an autoscaler has the `changes` of a document of five replicas, what it is `limited` by, `notes` and
the `query`; that of the fleet has `rows` with the changes of a plain one. `scripts/test tests/tools/ui
--update` writes the HTML of now.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from adapter.model.autoscaling.view import AutoscalerView
from fastpath_tools.ui import autoscaler_page, fleet_page
from fastpath_tools.ui.autoscaler_reading import AutoscalerReading
from fastpath_tools.ui.fleet import FleetFilter, FleetRow, ReactionTime
from fastpath_tools.ui.fleet_reading import Fleet
from fastpath_tools.ui.pages import Content, Templates
from tests.support.scripts import Recorded
from tests.tools.ui.autoscaler_views import HEALTHY, view

FOLDER = Path(__file__).parent / "pages"
TEMPLATES = Templates("/token/", "prod")
NOW = 1_000_000.0
PLAIN = FleetRow(HPA_KIND, "shop", "web", "", 4, 7, 2, 20, last_scale=NOW - 125, age=0.8)


def autoscaler(given: dict[str, Any]) -> Content:
    limited = given.get("limited", Restraint.FOLLOWS.value)
    shown = msgspec.to_builtins(view(limited and Restraint(limited))) | given.get("changes", {})
    reading = AutoscalerReading(
        msgspec.convert(shown, AutoscalerView), HEALTHY, tuple(given.get("notes", ()))
    )
    return autoscaler_page.render(TEMPLATES, reading, given.get("query", {}))


def fleet(given: dict[str, Any]) -> Content:
    rows = [
        PLAIN._replace(**row | {"reaction": ReactionTime(**row["reaction"]) if "reaction" in row else None})
        for row in given["rows"]
    ]
    selected = FleetFilter.of_query(given.get("query", {}))
    return fleet_page.render(Fleet(rows, tuple(given.get("notes", ()))), selected, NOW, TEMPLATES)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_page(path: Path, recorded: Recorded) -> None:
    given = yaml.safe_load(path.read_text())
    content = {"autoscaler": autoscaler, "fleet": fleet}[path.parent.name](given)
    sections = [f"<!-- {section.name} -->\n{section.html}\n" for section in content.sections]
    recorded(path.with_suffix(".html"), "".join(sections))
