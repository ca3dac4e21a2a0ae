"""The autoscaler that is simulated or forecast for, from a file."""

from typing import NamedTuple

import msgspec

from adapter.cli import command_line
from adapter.config.yaml import documents
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import boost, hpa
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerSpec

_NAMESPACE = "default"
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
    for document in documents.read_documents(source.text, source.name):
        if isinstance(document, InputError):
            faults += document.faults
            continue
        for place, tree in autoscaler_documents.documents_in(document.value):
            kind = autoscaler_documents.kind_of(tree)
            if not kind:
                continue
            try:
                read = autoscaler_documents.read_document(tree, _NAMESPACE, floor_metric=True)
            except InputError as error:
                faults += (documents.located(fault, place, document, source.name) for fault in error.faults)
                continue
            given = GivenAutoscaler(prepared(_annotated(read, tree)), kind, source.name)
            found.append((given, document.line_of(place.rstrip("."))))
    if not faults and len(found) != 1:
        expected = f"expected one {HPA_KIND} or {KIND}; the file has {len(found) or 'no such object'}"
        faults.append(Fault("", "", expected, source.name, found[1][1] if found else 0))
    if faults:
        raise InputError(faults)
    return found[0][0]


def _annotated(autoscaler: FastPathAutoscaler, tree: object) -> FastPathAutoscaler:
    """Return an autoscaler with the annotations of its document: those of boost say how an HPA is raised."""
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    meta = msgspec.structs.replace(autoscaler.metadata, annotations=annotations)
    return msgspec.structs.replace(autoscaler, metadata=meta)


def prepared(autoscaler: FastPathAutoscaler) -> FastPathAutoscaler:
    """Return an autoscaler without the metric of boost; one without metrics gets the API's default."""
    spec = autoscaler.spec
    own = tuple(metric for metric in spec.metrics or () if not boost.is_handshake(metric))
    listed = own or hpa.with_defaults(HorizontalPodAutoscalerSpec()).metrics
    return msgspec.structs.replace(autoscaler, spec=msgspec.structs.replace(spec, metrics=listed))
