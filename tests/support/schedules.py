"""Schedules for tests."""

from pathlib import Path
from typing import Any

from adapter.bounds.schedule import documents
from adapter.bounds.schedule.documents import FastPathSchedule

_OFFICE = Path(__file__).parents[2] / "docs" / "examples" / "schedules" / "office.yaml"
EXAMPLE = _OFFICE.read_text().replace('"08:00"', "08:00")
"""The example of the guide, with a time without quotes."""


def document(*windows: dict[str, Any], zone: Any = "Europe/Berlin", **spec: Any) -> dict[str, Any]:
    """Return the document of a schedule with these windows; a window without bounds has a floor of 1."""
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathSchedule",
        "metadata": {"name": "office", "namespace": "shop"},
        "spec": {
            "targets": [{"kind": "HorizontalPodAutoscaler", "name": "web"}],
            "timeZone": zone,
            "windows": [
                {"name": f"window-{number}"}
                | ({} if {"minReplicas", "maxReplicas"} & each.keys() else {"minReplicas": 1})
                | each
                for number, each in enumerate(windows)
            ],
        }
        | spec,
    }


def excepting(*dates: str) -> dict[str, Any]:
    """Return the document of a daily schedule with these dates as exceptions."""
    tree = document({"from": "08:00", "to": "18:00"})
    tree["spec"]["except"] = list(dates)
    return tree


def schedule(*windows: dict[str, Any], zone: Any = "Europe/Berlin", **spec: Any) -> FastPathSchedule:
    return documents.read_document(document(*windows, zone=zone, **spec))
