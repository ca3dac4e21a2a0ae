"""The page of all autoscalers: how many have which problem, a form that selects, and a line each."""

from urllib.parse import quote

from adapter.model.clock import Clock
from adapter.model.visible import counted
from fastpath_tools.doctor.hops import seconds
from fastpath_tools.ui import fleet
from fastpath_tools.ui.fleet import ANY, FleetFilter, Problem
from fastpath_tools.ui.fleet_reading import Fleet, FleetReader
from fastpath_tools.ui.pages import Content, Query, Templates

FLEET, AUTOSCALERS = "", "autoscalers"
"""Addresses of pages below the root: that of the fleet, and what those of single autoscalers begin with."""

_CHOICES = {"": "all", ANY: "with a problem"} | {problem.name.lower(): problem.value for problem in Problem}
"""What the form calls the values of the field `problem`."""


class FleetPage:
    def __init__(self, reader: FleetReader, templates: Templates, clock: Clock) -> None:
        self._reader = reader
        self._templates = templates
        self._clock = clock

    async def read(self, query: Query) -> Content:
        fields = FleetFilter.of_query(query)
        return render(await self._reader.read(), fields, self._clock.wall(), self._templates)


def render(shown: Fleet, fields: FleetFilter, now: float, templates: Templates) -> Content:
    counts = {problem.name.lower(): count for problem, count in fleet.count_problems(shown.rows).items()}
    healthy = sum(not row.problems for row in shown.rows)
    summary = templates.section(
        "summary",
        "fleet_summary.html",
        total=counted(len(shown.rows), "autoscaler", "autoscalers"),
        healthy=healthy,
        notes=shown.notes,
        counts=counts,
        choices=_CHOICES,
        fields=fields,
    )
    select = templates.section("select", "fleet_form.html", choices=_CHOICES, fields=fields)
    lines = templates.section(
        "fleet",
        "fleet.html",
        rows=fields.select(shown.rows),
        total=len(shown.rows),
        since=lambda at: fleet.UNKNOWN if at is None else f"{elapsed(now - at)} ago",
        age=lambda length: fleet.UNKNOWN if length is None else seconds(length),
        address=of_autoscaler,
    )
    return Content("Autoscalers", (summary, select, lines))


def elapsed(length: float) -> str:
    """Return a time that has passed, in its greatest unit only: ``40 s``, ``12 m``, ``3 h``, ``2 d``."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if length >= size:
            return f"{length / size:.0f} {unit}"
    return f"{max(length, 0.0):.0f} s"


def of_autoscaler(namespace: str, name: str) -> str:
    return "/".join((AUTOSCALERS, quote(namespace, safe=""), quote(name, safe="")))


def parse_autoscaler(path: str) -> tuple[str, str] | None:
    """Return namespace and name of an autoscaler's page from a decoded path, None for another path."""
    first, *key = path.split("/")
    if first != AUTOSCALERS or len(key) != 2 or not {"", ".", ".."}.isdisjoint(key):
        return None
    return key[0], key[1]
