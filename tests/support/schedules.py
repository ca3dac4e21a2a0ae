"""Schedules for tests."""

from typing import Any

from adapter.bounds.schedule import documents
from adapter.bounds.schedule.documents import FastPathSchedule

EXAMPLE = """\
apiVersion: fastpath.io/v1alpha1
kind: FastPathSchedule
metadata: {name: office, namespace: shop}
spec:
  targets: [{kind: HorizontalPodAutoscaler, name: web}, {kind: FastPathAutoscaler, name: api}]
  timeZone: Europe/Berlin
  ready: ByStart
  windows:
    - name: business
      days: [Mon, Tue, Wed, Thu, Fri]
      from: 08:00
      to: "18:30"
      minReplicas: 20
      maxReplicas: 80
    - name: month-end
      cron: "0 22 28-31 * *"
      for: 6h
      minReplicas: 40
    - name: sale
      start: 2026-11-27T00:00
      end: 2026-11-30T24:00
      minReplicas: 60
  except: [2026-12-25, 2026-12-26]
"""


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
