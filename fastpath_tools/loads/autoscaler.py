"""The autoscaler that is simulated or forecast for, from a file."""

from typing import NamedTuple

from msgspec.structs import replace

from adapter.cli import command_line
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import boost, documents, hpa
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerSpec
from fastpath_tools import manifests

NAMESPACE = "default"
"""The namespace of an autoscaler that names none; no figure depends on it."""


class GivenAutoscaler(NamedTuple):
    """An autoscaler, and the kind that it was before it was read as a FastPathAutoscaler.

    `place` leads to it in messages: a file, or an object of a cluster.
    """

    autoscaler: FastPathAutoscaler
    kind: str
    place: str


def read_autoscaler(file: str) -> GivenAutoscaler:
    """Return the one autoscaler of a file. InputError if it has none or several."""
    source = command_line.read_source(file)
    found: list[tuple[GivenAutoscaler, int]] = []
    faults: list[Fault] = []
    for each in manifests.objects_in(*source, faults):
        if kind := documents.kind_of(each.tree):
            with each.collecting(faults):
                read = documents.read_document(each.tree, NAMESPACE, floor_metric=True)
                annotations = manifests.mapping_at(each.tree, "metadata").get("annotations")
                # those of boost say how an HPA is raised
                meta = replace(read.metadata, annotations=annotations)
                autoscaler = prepared(replace(read, metadata=meta))
                found.append((GivenAutoscaler(autoscaler, kind, source.name), each.line))
    if not faults and len(found) != 1:
        expected = f"expected one {HPA_KIND} or {KIND}; the file has {len(found) or 'no such object'}"
        faults.append(Fault("", "", expected, source.name, found[1][1] if found else 0))
    if faults:
        raise InputError(faults)
    return found[0][0]


def prepared(autoscaler: FastPathAutoscaler) -> FastPathAutoscaler:
    """Return an autoscaler without the metric of boost; one without metrics gets the API's default."""
    spec = autoscaler.spec
    own = tuple(metric for metric in spec.metrics or () if not boost.is_handshake(metric))
    listed = own or hpa.with_defaults(HorizontalPodAutoscalerSpec()).metrics
    return replace(autoscaler, spec=replace(spec, metrics=listed))
