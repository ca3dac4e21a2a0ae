"""Generated objects, as hostile as an API server stores them: none escapes as an exception or takes long."""

import json
import random
import time
from typing import Any

import msgspec
import pytest

from adapter.kubernetes.cache import autoscalers, endpoint_slices, pod_codec, scale_codec, schedules
from adapter.kubernetes.cache.scale_codec import ReplicaPaths
from adapter.kubernetes.codec import PARTIAL_METADATA, ListDecoder, ObjectCodec, Unreadable
from adapter.kubernetes.write import config_map
from adapter.model.autoscaling.boost import ANNOTATIONS
from tests.kubernetes.cache.test_autoscalers import hpa
from tests.support.schedules import document as schedule

_PATHS = ReplicaPaths(("spec", "replicas"), ("status", "replicas"), ("status", "selector"))
CODECS: dict[str, ObjectCodec[Any]] = {
    "hpa": ObjectCodec(msgspec.Raw, autoscalers.keep_hpa),
    "autoscaler": ObjectCodec(msgspec.Raw, autoscalers._keep_autoscaler),
    "schedule": schedules.CODEC,
    "pod": pod_codec.POD_CODEC,
    "slice": endpoint_slices.CODEC,
    "scale": scale_codec.built_in(),
    "controller": scale_codec.built_in(plain_selector=True),
    "custom": scale_codec.custom(_PATHS),
    "metadata": PARTIAL_METADATA,
    "floors": config_map.CODEC,
}
TEXTS = [
    "", "\x1b[2J", "\u202e", "é" * 50, "9" * 400, "1e999", "1e-999", "-0", "NaN", "0x1p-1074",
    "mode=Floor,timeZone=" + "A/" * 5_000 + "B", "PT" + "9" * 300 + "H", "* " * 4_000, "(" * 16_000,
    "a=b," * 4_000, "9" * 16_000, "{" * 16_000, "\ufffd" * 5_000,
]  # fmt: skip
LONGEST = 1.0
"""CPU seconds for one object; the slowest takes some hundredths, and quadratic work on 16 KiB takes more."""


def value(source: random.Random, depth: int = 0) -> Any:
    kind = source.randrange(9 if depth < 3 else 6)
    if kind < 3:
        return source.choice(TEXTS)
    if kind == 3:
        return source.choice([0, -1, 2**31, 2**63, -(2**63), 10**30, 1.5, 1e308])
    if kind < 6:
        return source.choice([None, True, False])
    if kind == 6:
        return [value(source, depth + 1) for _ in range(source.randrange(4))]
    if kind == 7:
        return {source.choice(TEXTS): value(source, depth + 1) for _ in range(source.randrange(4))}
    nested: Any = 1
    for _ in range(300):
        nested = {"a": [nested]}
    return nested


def spoil(source: random.Random, tree: Any) -> Any:
    """Return a document with some of its values replaced."""
    if isinstance(tree, dict):
        return {
            key: value(source) if source.random() < 0.15 else spoil(source, inner)
            for key, inner in tree.items()
        }
    if isinstance(tree, list):
        return [value(source) if source.random() < 0.15 else spoil(source, inner) for inner in tree]
    return tree


def hostile(source: random.Random) -> dict[str, Any]:
    base = source.choice(
        [hpa("x"), schedule({"name": "d", "from": "08:00", "to": "18:00", "minReplicas": 5})]
    )
    spoiled: dict[str, Any] = spoil(source, base)
    spec = spoiled["spec"] if isinstance(spoiled.get("spec"), dict) else {}
    if source.random() < 0.5:
        more = ("replicas", "selector", "containers", "metrics", "behavior", "windows", "forecast")
        spoiled["spec"] = spec | {key: value(source) for key in more}
    for key in ("status", "data", "endpoints", "ports"):
        spoiled[key] = value(source)
    texts = {key: source.choice(TEXTS) for key in [*ANNOTATIONS, "other"] if source.random() < 0.7}
    spoiled["metadata"] = {"name": "x", "namespace": "shop", "resourceVersion": "7", "annotations": texts}
    return spoiled


@pytest.mark.parametrize("name", CODECS)
def test_no_object_escapes_or_takes_long(name: str) -> None:
    source = random.Random(20261124)
    slowest = 0.0
    for _ in range(300):
        lost: list[Unreadable] = []
        items = json.dumps([hostile(source), {"metadata": {"name": "good"}}])
        decoder: ListDecoder[Any] = ListDecoder(CODECS[name], lost.append)
        list(decoder.feed(f'{{"metadata":{{"resourceVersion":"9"}},"items":{items}}}'.encode()))
        started = time.thread_time()
        kept, _ = decoder.finish()
        slowest = max(slowest, time.thread_time() - started)
        assert len(kept) + len(lost) == 2
        assert all(each.name == "x" for each in lost)
        if name in {"hpa", "autoscaler", "schedule"}:
            assert not [each.reason for each in lost if not each.reason.startswith("ValidationError")]
    assert slowest < LONGEST
