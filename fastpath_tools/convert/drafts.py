"""FastPathSchedules from windows of KEDA, and the report on each window."""

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from adapter.bounds.schedule import documents
from adapter.bounds.schedule.documents import KIND
from adapter.bounds.schedule.windows import Schedule
from adapter.errors import Fault
from adapter.model import local_time
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION, LAST_APPLIED
from fastpath_tools.convert.conversion import SERVER_SET, Converted
from fastpath_tools.convert.cron import KedaCronTrigger
from fastpath_tools.convert.differences import Compared, sentences
from fastpath_tools.manifests import NOWHERE, mapping_at


class WindowDraft(NamedTuple):
    """Windows that stand for one trigger of KEDA.

    `windows` have names, and no bounds beside `replicas`. `label` names the trigger in the report.
    """

    label: str
    zone: ZoneInfo
    windows: Sequence[dict[str, Any]]
    replicas: int
    trigger: KedaCronTrigger


def write(
    name: str, namespace: str | None, target: dict[str, str], drafts: Sequence[WindowDraft], now: int
) -> Iterator[Converted]:
    """Yield a schedule for each zone, with its report. InputError if one is not valid."""
    zones = list(dict.fromkeys(draft.zone.key for draft in drafts))
    for key in zones:
        entries = [draft for draft in drafts if draft.zone.key == key]
        slug = "".join(sign if sign.isalnum() else "-" for sign in key.lower()).strip("-")
        metadata = {"name": name if key == zones[0] else f"{name}-{slug}"}
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": metadata if namespace is None else metadata | {"namespace": namespace},
            "spec": {
                "targets": [dict(target)],
                "timeZone": key,
                "windows": [
                    {**window, "minReplicas": entry.replicas} for entry in entries for window in entry.windows
                ],
            },
        }
        schedule = documents.read_document(document, NOWHERE).schedule
        yield Converted(document, tuple(_report(entries, schedule, now)))


def _report(entries: Sequence[WindowDraft], schedule: Schedule, now: int) -> Iterator[str]:
    for entry in entries:
        names = [window["name"] for window in entry.windows]
        for sentence in sentences(Compared(entry.trigger, schedule, names), now):
            yield f"{entry.label}: {sentence}"


def refuse(faults: list[Fault], path: str, value: object, expected: str) -> None:
    """Add a fault with a value as people write it."""
    shown = "absent" if value is None else autoscaler_documents.shown(value)
    faults.append(Fault(path, shown, expected))


def zone_of(name: object, path: str, faults: list[Fault]) -> ZoneInfo | None:
    """Return the zone of a name of the tz database; else None and a fault."""
    if isinstance(name, str) and (zone := local_time.read_zone(name)) is not None:
        return zone
    refuse(faults, path, name, "expected a time zone of the tz database such as Europe/Berlin")
    return None


def integer_at(tree: dict[str, Any], key: str, path: str, faults: list[Fault], default: int | None) -> int:
    """Return an integer of a document, also one that is written as text; else 0 and a fault."""
    value = tree.get(key, default)
    text = value.strip() if isinstance(value, str) else str(value)
    if not isinstance(value, bool) and text.removeprefix("-").isdecimal() and len(text) <= 10:
        return int(text)
    refuse(faults, path, value, "expected an integer")
    return 0


def named(tree: dict[str, Any], faults: list[Fault]) -> tuple[str, str | None]:
    """Return name and namespace of a document; a fault where it has no name."""
    meta = mapping_at(tree, "metadata")
    name, namespace = meta.get("name"), meta.get("namespace")
    if not isinstance(name, str) or not name:
        faults.append(Fault("metadata.name", "absent", "it is required"))
        return "", None
    return name, namespace if isinstance(namespace, str) and namespace else None


_OF_THE_OBJECT = frozenset({"apiVersion", "kind", "status", "metadata.name", "metadata.namespace"}) | {
    f"metadata.{name}" for name in SERVER_SET
}


def left_out(tree: dict[str, Any], read: AbstractSet[str]) -> Iterator[str]:
    """Yield a note on the fields of a document whose paths are not in `read`; they have [] for indices."""
    names = [f"{path}: {whole(value)}" for path, value in _unread(tree, "", "", read | _OF_THE_OBJECT)]
    if names:
        yield f"left out: {', '.join(names)}"


def _unread(tree: object, path: str, pattern: str, read: AbstractSet[str]) -> Iterator[tuple[str, object]]:
    """Yield path and value of each field that is not read; of one without a part that is, the whole."""
    if tree is None or pattern in read or path.endswith(LAST_APPLIED):
        return
    is_above = pattern in {"", "metadata", "metadata.annotations"} or any(
        other.startswith((f"{pattern}.", f"{pattern}[]")) for other in read
    )
    if not is_above or not isinstance(tree, dict | list):
        yield path, tree
    elif isinstance(tree, dict):
        dot = "." if path else ""
        for name, value in tree.items():
            yield from _unread(value, f"{path}{dot}{name}", f"{pattern}{dot}{name}", read)
    else:
        for index, value in enumerate(tree):
            yield from _unread(value, f"{path}[{index}]", f"{pattern}[]", read)


def whole(value: object) -> str:
    """Return a value as JSON, whole: it may be needed elsewhere."""
    return json.dumps(value, ensure_ascii=False, default=str)


def with_names(windows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return windows with names: the first has `name`, others a number behind it."""
    return [
        {"name": name if not index else f"{name}-part-{index + 1}", **window}
        for index, window in enumerate(windows)
    ]
