"""Content negotiation, and the encoding of objects, lists, PartialObjectMetadata and Tables.

The store encodes an object once; a view only joins those bytes. Watch events of many clients thus share the
work. A Table has the columns that ``kubectl get`` prints: every kind has at least Name and Age, and a cell
without a value shows what kubectl shows, ``<none>`` or ``0``.
"""

import datetime as dt
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.store import JSON, Record

HEADERS = {"Cache-Control": "no-cache, private"}
_METADATA = "meta.k8s.io/v1"


class ObjectView(enum.Enum):
    """The representation that a client asks for."""

    PLAIN = "plain"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"
    TABLE = "Table"


class MediaRange(NamedTuple):
    """One entry of an Accept header: type and parameters."""

    type: str
    parameters: dict[str, str]


def json_response(body: bytes, code: int = 200, content_type: str = "application/json") -> web.Response:
    return web.Response(body=body, status=code, headers=HEADERS | {"Content-Type": content_type})


def parse_accept(accept: str) -> list[MediaRange]:
    """Return the entries of an Accept header by quality, otherwise in order."""
    ranges = []
    for entry in filter(None, (part.strip() for part in (accept or "*/*").split(","))):
        kind, *rest = (piece.strip() for piece in entry.split(";"))
        parameters = dict(piece.partition("=")[::2] for piece in rest)
        ranges.append(MediaRange(kind, parameters))
    return sorted(ranges, key=_negative_quality)


def _negative_quality(media: MediaRange) -> float:
    try:
        return -float(media.parameters.get("q", "1"))
    except ValueError:
        return 0.0


def negotiate(accept: str) -> ObjectView:
    """Return the view of the first acceptable entry; raise 406 without one. Only JSON is supported."""
    for media in parse_accept(accept):
        if media.type not in {"application/json", "*/*", "application/*"}:
            continue
        wanted = media.parameters.get("as")
        if wanted is None:
            return ObjectView.PLAIN
        if media.parameters.get("g") == "meta.k8s.io" and media.parameters.get("v") in {"v1", "v1beta1"}:
            for form in (ObjectView.PARTIAL, ObjectView.PARTIAL_LIST, ObjectView.TABLE):
                if form.value == wanted:
                    return form
    raise status.not_acceptable()


class View(NamedTuple):
    """How one client sees the objects of a kind.

    `include` is the Table option includeObject. `now` gives epoch seconds, for ages.
    """

    form: ObjectView
    kind: Kind
    include: str
    now: Callable[[], float]

    def one(self, record: Record, *, headed: bool = True) -> bytes:
        """Return one object; a `headed` Table has its columns."""
        self.check_object()
        if self.form is ObjectView.PARTIAL:
            return _typed("PartialObjectMetadata", _METADATA, _field("metadata", record.metadata))
        if self.form is ObjectView.TABLE:
            return self._table([record], {"resourceVersion": str(record.version)}, headed=headed)
        return _typed(self.kind.kind, self.kind.api_version, record.body)

    def many(self, records: Sequence[Record], metadata: JSON) -> bytes:
        """Return a list. As in real lists, items carry kind and apiVersion only if the kind is custom."""
        kind = self.kind
        if self.form is ObjectView.TABLE:
            return self._table(records, metadata, headed=True)
        if self.form is ObjectView.PARTIAL:
            raise status.not_acceptable(
                f"you requested PartialObjectMetadata, but the requested object is a list (*{kind.kind}List)"
            )
        items: Iterable[bytes]
        name, api_version = f"{kind.kind}List", kind.api_version
        if self.form is ObjectView.PARTIAL_LIST:
            name, api_version = "PartialObjectMetadataList", _METADATA
            partial = self._replace(form=ObjectView.PARTIAL)
            items = (partial.one(record) for record in records)
        elif kind.custom:
            items = (self.one(record) for record in records)
        else:
            items = (b"{" + record.body + b"}" for record in records)
        return _typed(name, api_version, _encoded("metadata", metadata) + b"," + _array("items", items))

    def bookmark(self, version: int) -> bytes:
        """Return the object of a BOOKMARK event: a version, and a null timestamp as upstream sends it."""
        metadata: JSON = {"resourceVersion": str(version), "creationTimestamp": None}
        if self.form is ObjectView.PARTIAL:
            return _typed("PartialObjectMetadata", _METADATA, _encoded("metadata", metadata))
        if self.form is ObjectView.TABLE:
            del metadata["creationTimestamp"]
            return _typed(
                "Table", _METADATA, _encoded("metadata", metadata) + b',"columnDefinitions":null,"rows":[]'
            )
        return _typed(self.kind.kind, self.kind.api_version, _encoded("metadata", metadata))

    def check_object(self) -> None:
        """Raise 406 if the client asks for a list where an object is shown."""
        if self.form is ObjectView.PARTIAL_LIST:
            raise status.not_acceptable(
                "you requested PartialObjectMetadataList, "
                f"but the requested object is not a list (*{self.kind.kind})"
            )

    def _table(self, records: Sequence[Record], metadata: JSON, *, headed: bool) -> bytes:
        form = ObjectView.PLAIN if self.include == "Object" else ObjectView.PARTIAL
        shown = self._replace(form=form)
        rows = (
            b"{"
            + _encoded("cells", _cells(self.kind, record.document, self.now()))
            + b","
            + _field("object", b"null" if self.include == "None" else shown.one(record))
            + b"}"
            for record in records
        )
        columns = _encoded("columnDefinitions", _column_definitions(self.kind) if headed else None)
        body = b",".join((_encoded("metadata", metadata), columns, _array("rows", rows)))
        return _typed("Table", _METADATA, body)


def _typed(kind: str, api_version: str, body: bytes) -> bytes:
    return f'{{"kind":"{kind}","apiVersion":"{api_version}",'.encode() + body + b"}"


def _field(name: str, value: bytes) -> bytes:
    return b'"' + name.encode() + b'":' + value


def _encoded(name: str, value: Any) -> bytes:
    return _field(name, msgspec.json.encode(value))


def _array(name: str, items: Iterable[bytes]) -> bytes:
    return _field(name, b"[" + b",".join(items) + b"]")


Column = tuple[str, str, Callable[[JSON], Any]]


def _status(field: str, absent: Any) -> Callable[[JSON], Any]:
    return lambda document: document.get("status", {}).get(field, absent)


def _spec(field: str, absent: Any) -> Callable[[JSON], Any]:
    return lambda document: document.get("spec", {}).get(field, absent)


def _pod_ready(document: JSON) -> str:
    containers = document.get("spec", {}).get("containers") or []
    statuses = document.get("status", {}).get("containerStatuses") or []
    return f"{sum(bool(entry.get('ready')) for entry in statuses)}/{len(containers)}"


def _pod_phase(document: JSON) -> str:
    if "deletionTimestamp" in document["metadata"]:
        return "Terminating"
    return str(document.get("status", {}).get("phase", "Unknown"))


def _replicas_ready(document: JSON) -> str:
    return (
        f"{document.get('status', {}).get('readyReplicas', 0)}/{document.get('spec', {}).get('replicas', 1)}"
    )


def _reference(document: JSON) -> str:
    target = document.get("spec", {}).get("scaleTargetRef") or {}
    return f"{target.get('kind', '<none>')}/{target.get('name', '<none>')}"


def _node_ready(document: JSON) -> str:
    conditions = document.get("status", {}).get("conditions") or []
    ready: JSON = next((entry for entry in conditions if entry.get("type") == "Ready"), {})
    return {"True": "Ready", "False": "NotReady"}.get(ready.get("status", ""), "Unknown")


def _next_boundary(document: JSON) -> Any:
    return (document.get("status", {}).get("nextBoundary") or {}).get("time")


def _applied(document: JSON) -> Any:
    conditions = document.get("status", {}).get("conditions") or []
    return next((entry.get("status") for entry in conditions if entry.get("type") == "Applied"), None)


def _involved(document: JSON) -> str:
    involved = document.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


_COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", "pods"): (("Ready", "string", _pod_ready), ("Status", "string", _pod_phase)),
    ("", "nodes"): (("Status", "string", _node_ready),),
    ("", "namespaces"): (("Status", "string", _status("phase", "Active")),),
    ("", "services"): (
        ("Type", "string", _spec("type", "ClusterIP")),
        ("Cluster-IP", "string", _spec("clusterIP", "<none>")),
    ),
    ("", "configmaps"): (("Data", "string", lambda document: len(document.get("data") or {})),),
    ("", "events"): (
        ("Type", "string", lambda document: document.get("type", "")),
        ("Reason", "string", lambda document: document.get("reason", "")),
        ("Object", "string", _involved),
        ("Message", "string", lambda document: document.get("message", "")),
    ),
    ("apps", "deployments"): (
        ("Ready", "string", _replicas_ready),
        ("Up-to-date", "string", _status("updatedReplicas", 0)),
        ("Available", "string", _status("availableReplicas", 0)),
    ),
    ("apps", "statefulsets"): (("Ready", "string", _replicas_ready),),
    ("apps", "replicasets"): (
        ("Desired", "integer", _spec("replicas", 1)),
        ("Current", "integer", _status("replicas", 0)),
        ("Ready", "integer", _status("readyReplicas", 0)),
    ),
    ("autoscaling", "horizontalpodautoscalers"): (
        ("Reference", "string", _reference),
        ("MinPods", "string", _spec("minReplicas", 1)),
        ("MaxPods", "string", _spec("maxReplicas", "<none>")),
        ("Replicas", "string", _status("currentReplicas", 0)),
    ),
    ("fastpath.io", "fastpathschedules"): (
        ("Active", "string", _status("active", None)),
        ("Min", "integer", _status("minReplicas", None)),
        ("Max", "integer", _status("maxReplicas", None)),
        ("Next", "string", _next_boundary),
        ("Applied", "string", _applied),
    ),
    ("coordination.k8s.io", "leases"): (("Holder", "string", _spec("holderIdentity", "<none>")),),
}


def _column_definitions(kind: Kind) -> list[JSON]:
    middle = _COLUMNS.get((kind.group, kind.plural), ())
    columns = [
        ("Name", "string", "name"),
        *((name, type_, "") for name, type_, _ in middle),
        ("Age", "string", ""),
    ]
    return [
        {"name": name, "type": type_, "format": format_, "description": "", "priority": 0}
        for name, type_, format_ in columns
    ]


def _cells(kind: Kind, document: JSON, now: float) -> list[Any]:
    """Return the cells of an object; `now` is epoch seconds, for the age."""
    middle = _COLUMNS.get((kind.group, kind.plural), ())
    return [document["metadata"]["name"], *(cell(document) for _, _, cell in middle), _age(document, now)]


def _age(document: JSON, now: float) -> str:
    created = dt.datetime.fromisoformat(document["metadata"]["creationTimestamp"])
    seconds = max(0, int(now - created.timestamp()))
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"
