"""`fastpath convert`.

The FastPathAutoscaler for each HorizontalPodAutoscaler of a manifest, with --back the reverse, and the
FastPathSchedule for each ScaledObject with cron triggers. Fields that the other kind does not have, and times
at which a schedule differs from what it comes from, are named on standard error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.cli import command_line
from adapter.compose.clock import SystemClock
from adapter.config.option_fields import Command, CommandOptions, arguments, switch
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from fastpath_tools import manifests, origins
from fastpath_tools.convert import conversion, keda
from fastpath_tools.convert.conversion import Converted
from fastpath_tools.manifests import ManifestObject, mapping_at


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(CommandOptions):
    files: tuple[str, ...] = arguments(are_files=True)
    back: bool = switch("Print the HorizontalPodAutoscaler for each FastPathAutoscaler.")


COMMAND = Command(
    verb="convert",
    options=ConvertOptions,
    usage="[FILE...] [flags]",
    about="""\
Prints the FastPathAutoscaler for each HorizontalPodAutoscaler (autoscaling/v2) of a manifest, as
YAML, or with --back the HorizontalPodAutoscaler for each FastPathAutoscaler. Target, limits,
metrics and behavior are kept. The annotations of boost for pending capacity and a forecast become
fields. What the other kind does not have is left out and named on standard error: the metric and
the other annotations of boost, or the fields that only a FastPathAutoscaler has.
Standard error also names metrics that end with the HorizontalPodAutoscaler, which are those of its
metric-config.* annotations and those of KEDA, and an owner that makes it again, such as a
ScaledObject.

Prints the FastPathSchedule for the cron triggers of each ScaledObject of KEDA. Standard error has
the times at which the schedule and KEDA differ, what the autoscaler needs of the ScaledObject
(minReplicaCount, maxReplicaCount, other triggers, fallback, behavior), and each field that is not
kept. A ScaledObject without a cron trigger, or paused by an annotation (paused, paused-replicas),
has no schedule.
docs/guides/migrate-schedules.md explains them.

Delete the autoscaler before its successor is applied. While a target has two, Fastpath does not
scale it. docs/guides/fast-scaler.md has the steps in both directions. FILE is YAML or JSON; - or no FILE:
standard input.
""",
)


@command_line.verb(COMMAND)
def main(options: ConvertOptions) -> int:
    """Convert documents; 0 if all autoscalers were, 2 if one is not valid or the files have no autoscaler.

    With status 2 nothing is printed.
    """
    faults: list[Fault] = []
    objects: list[ManifestObject] = []
    for file in command_line.given_files("convert", options.files):
        try:
            objects += manifests.objects_in(*command_line.read_source(file), faults)
        except InputError as error:
            faults += error.faults
    successors = list(_convert(objects, faults, back=options.back))
    if not successors and not faults:
        expected = KIND if options.back else _SOURCES
        faults.append(Fault("", "", f"expected a {expected}; the files have no such object"))
    if faults:
        raise InputError(faults)
    command_line.show("---\n".join(successors))
    return 0


_SOURCES = f"{HPA_KIND}, or a {keda.SCALED_OBJECT} that has a cron trigger and is not paused"


def _convert(objects: Sequence[ManifestObject], faults: list[Fault], *, back: bool) -> Iterator[str]:
    """Yield the successors of objects as YAML.

    Objects of other kinds are named and left out; `faults` grows with what is wrong.
    """
    autoscalers = [given.tree for given in objects if autoscaler_documents.kind_of(given.tree)]
    scaled_objects = [given.tree for given in objects if keda.is_scaled_object(given.tree)]
    convertible = [tree for tree in autoscalers if not back or tree["kind"] == KIND]
    now = int(SystemClock().wall())
    for given in objects:
        named = "not an object"
        if isinstance(given.tree, dict):
            parts = (
                given.tree.get("kind") or "an object without kind",
                mapping_at(given.tree, "metadata").get("name"),
            )
            named = " ".join(str(part) for part in parts if part)
        line = f"{given.source}:{given.line}: {named}"
        with given.collecting(faults):
            converted = _successors(given.tree, autoscalers, now, back=back)
            if not converted:
                for reason in (not back and keda.reasons_left_out(given.tree)) or ["left out"]:
                    command_line.tell("convert", f"{line}: {reason}")
            else:
                rivals = scaled_objects if keda.is_scaled_object(given.tree) else convertible
                if rivalry := origins.rivalry(given.tree, rivals):
                    command_line.tell("convert", f"{line}: {rivalry}")
            for document, notes in converted:
                for note in notes:
                    command_line.tell("convert", f"{line}: {note}")
                yield command_line.to_yaml(document)


def _successors(
    tree: Any, autoscalers: Sequence[dict[str, Any]], now: int, *, back: bool
) -> Sequence[Converted]:
    """Return what takes the place of an object, nothing for one of another kind, or one left out."""
    if back:
        return [conversion.to_native(tree)] if autoscaler_documents.kind_of(tree) == KIND else []
    if autoscaler_documents.kind_of(tree):
        successor = conversion.to_fastpath(tree)
        return [successor._replace(notes=(*successor.notes, *origins.replacement_notes(tree)))]
    if keda.is_scaled_object(tree) and not keda.reasons_left_out(tree):
        return keda.convert(tree, lambda *target: _autoscaler_of(autoscalers, *target), now)
    return []


def _autoscaler_of(
    autoscalers: Sequence[dict[str, Any]], reference: dict[str, Any], namespace: str | None
) -> str:
    """Return the name of the autoscaler of a target, "" for none."""
    wanted = origins.target_of({"metadata": {"namespace": namespace}, "spec": {"scaleTargetRef": reference}})
    named = (
        mapping_at(tree, "metadata").get("name") for tree in autoscalers if origins.target_of(tree) == wanted
    )
    return str(next(named, ""))
