"""The Grafana dashboards in manifests/chart/files. ``python -m scripts.generate.dashboards`` writes them.

`panels` says what they show. The names of metrics, and what they mean, come from the table in
`adapter.telemetry.metrics`. The panels of a dashboard fill rows of 24 units from left to right.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adapter.telemetry.metrics import METRICS
from scripts.generate.panels import DASHBOARDS, Dashboard, Panel, Query, Variable

FOLDER = Path(__file__).parent.parent.parent / "manifests" / "chart" / "files" / "dashboards"

JSON = dict[str, Any]

SCHEMA = 39
"""The schema of Grafana 10.4 and 11; later versions migrate it when they load it."""

_ROWS = {row.attribute: row for row in METRICS}
_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def resolve(text: str) -> str:
    """Return a query with the names of its metrics; KeyError for an attribute that does not exist."""
    return re.sub(r"<(\w+)>", lambda match: _ROWS[match[1]].name, text)


def expressions_of(dashboard: Dashboard) -> Iterator[tuple[Panel, Query, str]]:
    for panel in dashboard.panels:
        for query in panel.queries:
            yield panel, query, resolve(query.expr)


def render(dashboard: Dashboard) -> str:
    """Return the JSON of a dashboard, as Grafana imports it."""
    document = {
        "uid": f"fastpath-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["fastpath"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "Fastpath",
                "tags": ["fastpath"],
                "asDropdown": False,
                "includeVars": False,
                "keepTime": True,
            }
        ],
        "annotations": {"list": []},
        "templating": {"list": [_CHOICE_OF_DATASOURCE, *map(_variable, dashboard.variables)]},
        "panels": list(_placed(dashboard.panels)),
    }
    return json.dumps(document, indent=2) + "\n"


_CHOSEN: JSON = {"current": {}, "hide": 0, "includeAll": False, "multi": False, "regex": ""}
_CHOICE_OF_DATASOURCE: JSON = {
    "type": "datasource",
    "name": "datasource",
    "label": "Data source",
    "query": "prometheus",
    "refresh": 1,
} | _CHOSEN


def _variable(variable: Variable) -> JSON:
    query = resolve(variable.query)
    made: JSON = {
        "type": "query",
        "name": variable.name,
        "label": variable.label,
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "current": {},
        "hide": 0,
        "includeAll": variable.several,
        "multi": variable.several,
        "refresh": 2,
        "regex": "",
        "sort": 1,
    }
    if variable.several:
        made |= {"allValue": ".*", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return made


def _placed(panels: Sequence[Panel]) -> Iterator[JSON]:
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _WIDTH:
            x, y, height = 0, y + height, 0
        height = max(height, panel.height)
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": panel.height})
        x += panel.width


def _panel(number: int, panel: Panel, place: JSON) -> JSON:
    made: JSON = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": _describe(panel),
        "gridPos": place,
        "datasource": _DATASOURCE,
        "targets": [
            _target(panel, letter, query) for letter, query in zip("ABCDEFGH", panel.queries, strict=False)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }
    if panel.kind == "table":
        made["transformations"] = _transformations(panel)
    return made


def _describe(panel: Panel) -> str:
    """Return what a panel means, and what the table says of its metrics."""
    named = [name for query in panel.queries for name in re.findall(r"<(\w+)>", query.expr)]
    rows = [_ROWS[name] for name in dict.fromkeys(named) if name != "build"]
    return "\n\n".join([panel.about, *(f"`{row.name}`: {row.help}" for row in rows)])


def _target(panel: Panel, letter: str, query: Query) -> JSON:
    is_instant = panel.kind in {"stat", "table"}
    return {
        "refId": letter,
        "datasource": _DATASOURCE,
        "expr": resolve(query.expr),
        "legendFormat": query.legend or "__auto",
        "editorMode": "code",
        "instant": is_instant,
        "range": not is_instant,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _defaults(panel: Panel) -> JSON:
    defaults: JSON = {"unit": panel.unit}
    if panel.minimum is not None and panel.kind == "timeseries":
        defaults["min"] = panel.minimum
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {
            "drawStyle": "line",
            "lineInterpolation": "stepAfter" if panel.unit == "short" else "linear",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": stacking,
        }
    if panel.kind == "state-timeline":
        defaults |= {"custom": {"fillOpacity": 70, "lineWidth": 0}, "noValue": ""}
        shown = {"type": "value", "options": {"1": {"text": " ", "index": 0}}}
        defaults["mappings"] = [shown]
    if panel.kind == "stat":
        colors = ("red", "green") if panel.red_below else ("green", "red")
        steps: list[JSON] = [{"color": colors[0] if panel.red is not None else "text", "value": None}]
        if panel.red is not None:
            steps.append({"color": colors[1], "value": panel.red})
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["color"] = {"mode": "thresholds"}
    return defaults


def _overrides(panel: Panel) -> list[JSON]:
    overrides = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}}],
        }
        for name in panel.dashed
    ]
    overrides += [
        {"matcher": {"id": "byName", "options": title}, "properties": [{"id": "unit", "value": unit}]}
        for title, unit in panel.columns
        if title
    ]
    if panel.kind == "table":
        link = {
            "title": "Show this autoscaler",
            "url": "/d/fastpath-autoscaler?var-datasource=${datasource}"
            "&var-namespace=${__data.fields.Namespace}&var-name=${__data.fields.Name}&var-kind=${__data.fields.Kind}",
        }
        properties = [{"id": "links", "value": [link]}]
        overrides.append({"matcher": {"id": "byName", "options": "Name"}, "properties": properties})
    return overrides


def _transformations(panel: Panel) -> list[JSON]:
    """Make one line of the results of all queries for the same labels, and name its columns."""
    letters = "ABCDEFGH"[: len(panel.columns)]
    names = {"namespace": "Namespace", "name": "Name", "kind": "Kind", "reason": "Reason"}
    columns = {f"Value #{letter}": title for letter, (title, _) in zip(letters, panel.columns, strict=True)}
    hidden = {"Time": True} | {value: True for value, title in columns.items() if not title}
    order = ["namespace", "name", "kind", "reason", *(value for value, title in columns.items() if title)]
    renamed = names | {value: title for value, title in columns.items() if title}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": hidden,
                "indexByName": {name: index for index, name in enumerate(order)},
                "renameByName": renamed,
            },
        },
    ]


def _options(panel: Panel) -> JSON:
    legend = {"displayMode": "list", "placement": "bottom"}
    match panel.kind:
        case "timeseries":
            tooltip = {"mode": "multi", "sort": "desc"}
            return {"legend": legend | {"showLegend": True, "calcs": []}, "tooltip": tooltip}
        case "stat":
            return {
                "colorMode": "value" if panel.red is not None else "none",
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "textMode": "name" if panel.names else "auto",
            }
        case "table":
            first = panel.columns[0][0]
            return {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": first, "desc": True}]}
        case _:
            shown = {"showValue": "never", "mergeValues": True, "rowHeight": 0.8}
            return shown | {"legend": legend | {"showLegend": False}, "alignValue": "left"}


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each.name}.json").write_text(render(each))
