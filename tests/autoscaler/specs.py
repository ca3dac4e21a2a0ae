"""Specs of autoscalers in the words of a script."""

from collections.abc import Iterable
from typing import Any

import yaml

from tests.support.controller import QUEUE
from tests.support.scaling import cpu_metric, external_metric, pods_metric

METRICS = {
    "queue": QUEUE[0],
    "value": external_metric(value="1"),
    "load": pods_metric("10"),
    "jobs": external_metric("jobs", averageValue="10"),
    "load-of-12": pods_metric("12"),
    "other": pods_metric("10", "other"),
    "connections": pods_metric("3", "connections"),
    "cpu": cpu_metric(100),
    "handshake": external_metric("fastpath_replicas", averageValue="1"),
}


def read_spec(words: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a spec; `window`, `up`, `down`, `target` and `metrics` are short for some."""
    spec: dict[str, Any] = {}
    behavior: dict[str, Any] = {}
    for name, _, text in (word.partition("=") for word in words):
        if name == "window":
            behavior.setdefault("scaleDown", {})["stabilizationWindowSeconds"] = int(text)
        elif name in {"up", "down"}:
            count, seconds = map(int, text.split("/"))
            policy = {"type": "Pods", "value": count, "periodSeconds": seconds}
            behavior.setdefault(f"scale{name.title()}", {})["policies"] = [policy]
        elif name == "target":
            kind, _, target = text.rpartition("/")
            reference = {"apiVersion": "apps/v1", "kind": kind or "Deployment", "name": target}
            spec["scaleTargetRef"] = reference
        elif name == "metrics":
            spec["metrics"] = [METRICS[metric] for metric in text.split(",")]
        else:
            spec[name] = yaml.safe_load(text)
    return spec | ({"behavior": behavior} if behavior else {})
