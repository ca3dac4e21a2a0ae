"""Create, replace, patch, delete and scale over the store, without HTTP.

This module does what the generic registry and the strategies of a real API server do before an object is
stored: identity, versions, generations, the split of spec and status, finalizers and garbage collection. A
write stores exactly one new version or raises a Status. A write that changes nothing stores nothing.
"""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from fastpath_sandbox.apiserver import kinds, scale, status
from fastpath_sandbox.apiserver.kinds import Kind, KindTable
from fastpath_sandbox.apiserver.scale import SANDBOX, WriteOptions
from fastpath_sandbox.apiserver.store import JSON, Record, Store, clone

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_PATTERN = re.compile(_SUBDOMAIN)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with "
    f"an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "managedFields")
_SCALED = frozenset(
    (
        ("", "replicationcontrollers"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
    )
)


def timestamp(now: float) -> str:
    """Return epoch seconds in the form of the API, in whole seconds."""
    return dt.datetime.fromtimestamp(int(now), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_suffix(number: int) -> str:
    """Return five letters for generateName, unique for each number below 14 million."""
    number = number * 7_368_787 % 27**5
    letters = []
    for _ in range(5):
        number, place = divmod(number, 27)
        letters.append(_SUFFIX_LETTERS[place])
    return "".join(letters)


class ObjectRegistry:
    """Reads and writes of one cluster. `now` gives epoch seconds for creation and deletion timestamps."""

    def __init__(self, store: Store, kinds: KindTable, now: Callable[[], float]) -> None:
        self.store = store
        self.kinds = kinds
        self._now = now
        self._uids = 0
        self._suffixes = 0

    def read(self, kind: Kind, namespace: str, name: str) -> Record:
        """Return the current record or raise 404."""
        record = self.store.get(kind.key, namespace, name)
        if record is None:
            raise status.not_found(kind, name)
        return record

    def create(
        self, kind: Kind, namespace: str, document: JSON, by: WriteOptions = SANDBOX, *, trusted: bool = False
    ) -> Record:
        """Store a new object; `by` is recorded as the writer of its replicas.

        A `trusted` create (from Python, never from HTTP) keeps its status and creates a missing namespace.
        """
        document = self._checked(kind, namespace, clone(document))
        metadata = document["metadata"]
        if "name" not in metadata and metadata.get("generateName"):
            self._suffixes += 1
            metadata["name"] = metadata["generateName"] + name_suffix(self._suffixes)
        name = metadata.get("name", "")
        _check_name(kind, name)
        if kind.namespaced:
            self._need_namespace(namespace, trusted=trusted)
            metadata["namespace"] = namespace
        if self.store.get(kind.key, namespace, name) is not None:
            raise status.already_exists(kind, name)
        if metadata.get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        for field in (*_SYSTEM_FIELDS, "resourceVersion"):
            metadata.pop(field, None)
        self._uids += 1
        metadata["uid"] = f"00000000-0000-4000-8000-{self._uids:012x}"
        metadata["creationTimestamp"] = timestamp(self._now())
        if kind.generation:
            metadata["generation"] = 1
        if "status" in kind.subresources and not trusted:
            document.pop("status", None)
        _check_content(kind, namespace, document)
        _set_defaults(kind, document)
        scale.record_writer(kind, None, document, by, timestamp(self._now()))
        if by.dry_run:
            return Record(document, self.store.version)
        return self.store.put(kind.key, document)

    def replace(
        self, kind: Kind, namespace: str, name: str, document: JSON, by: WriteOptions = SANDBOX
    ) -> tuple[Record, bool]:
        """Replace an object, or only its status; return the record and whether a PUT created it."""
        document = self._checked(kind, namespace, clone(document))
        given = document["metadata"].setdefault("name", name)
        if given != name:
            raise status.wrong_name(given, name)
        current = self.store.get(kind.key, namespace, name)
        version = document["metadata"].get("resourceVersion", "")
        if current is None:
            if kind.create_on_update and not by.subresource and not version:
                return self.create(kind, namespace, document, by), True
            raise status.not_found(kind, name)
        if not version and kind.must_carry_version:
            message, field = 'Invalid value: "": must be specified for an update', "metadata.resourceVersion"
            raise status.invalid(kind.plural, kind.group, name, field=field, message=message)
        return self._write(kind, current, document, by), False

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[JSON], JSON],
        by: WriteOptions = SANDBOX,
    ) -> Record:
        """Replace an object by the result of `change`, which must not alter its argument."""
        current = self.read(kind, namespace, name)
        document = self._checked(kind, namespace, clone(change(current.document)))
        if document["metadata"].get("name") != name:
            raise status.wrong_name(document["metadata"].get("name", ""), name)
        return self._write(kind, current, document, by)

    def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        merged: Callable[[JSON], JSON],
        by: WriteOptions = SANDBOX,
    ) -> tuple[Record, bool]:
        """Create the object or merge into it: server-side apply without field ownership."""
        if self.store.get(kind.key, namespace, name) is not None:
            return self.patch(kind, namespace, name, merged, by), False
        document = merged({"metadata": {"name": name}})
        return self.create(kind, namespace, document, by), True

    def _write(self, kind: Kind, current: Record, document: JSON, by: WriteOptions) -> Record:
        metadata = document["metadata"]
        version = metadata.get("resourceVersion", "")
        if version and version != str(current.version):
            raise status.conflict(kind, current.name)
        old = current.document
        old_metadata = old["metadata"]
        if metadata.get("uid") and metadata["uid"] != old_metadata["uid"]:
            raise _precondition_failed(kind, current, "uid", metadata["uid"])
        if by.subresource == "status":
            state = {"status": document["status"]} if "status" in document else {}
            document = {**old, "metadata": dict(old_metadata)} | state
        else:
            _carry_over(kind, current, document)
        if document == old:
            return current
        scale.record_writer(kind, old, document, by, timestamp(self._now()))
        if by.dry_run:
            return Record(document, current.version)
        if "deletionTimestamp" in old_metadata and not document["metadata"].get("finalizers"):
            return self._remove(kind, current, "Background")
        return self.store.put(kind.key, document)

    def delete(self, kind: Kind, record: Record, options: JSON | None = None) -> Record:
        """Delete an object, or mark it while finalizers hold it; return the last state.

        `options` are DeleteOptions. Preconditions and propagationPolicy count; grace periods do not, without
        a kubelet.
        """
        options = options or {}
        wanted = options.get("preconditions") or {}
        metadata = record.document["metadata"]
        for field in ("uid", "resourceVersion"):
            if wanted.get(field) not in {None, metadata[field]}:
                raise _precondition_failed(kind, record, field, wanted[field])
        policy = options.get("propagationPolicy") or "Background"
        if metadata.get("finalizers"):
            if "deletionTimestamp" in metadata:
                return record
            marked = {
                **record.document,
                "metadata": {**metadata, "deletionTimestamp": timestamp(self._now())},
            }
            return self.store.put(kind.key, marked)
        return self._remove(kind, record, policy)

    def _remove(self, kind: Kind, record: Record, policy: str) -> Record:
        last = self.store.remove(kind.key, record)
        uid = record.document["metadata"]["uid"]
        for key, dependent in self.store.dependents(uid):
            owners = dependent.document["metadata"]["ownerReferences"]
            if policy == "Orphan" or len(owners) > 1:
                rest = [owner for owner in owners if owner["uid"] != uid]
                metadata = {**dependent.document["metadata"], "ownerReferences": rest}
                if not rest:
                    del metadata["ownerReferences"]
                self.store.put(key, {**dependent.document, "metadata": metadata})
            else:
                self.delete(self.kinds.of_objects(key), dependent)
        if kind.key == ("", "namespaces"):
            for key, records in self.store.kinds_in(record.name):
                for content in records:
                    if self.store.get(key, content.namespace, content.name) is not None:
                        self.delete(self.kinds.of_objects(key), content)
        return last

    def rescale(
        self, kind: Kind, namespace: str, name: str, change: Callable[[JSON], JSON], by: WriteOptions
    ) -> Record:
        """Write the replicas of an object; `change` turns its Scale into the new one."""
        record = self.read(kind, namespace, name)
        document = scale.rescaled(kind, record, change(scale.build_scale(kind, record)))
        return self._write(kind, record, document, by._replace(subresource="scale"))

    def _need_namespace(self, namespace: str, *, trusted: bool) -> None:
        if self.store.get(("", "namespaces"), "", namespace) is not None:
            return
        kind = self.kinds.find("namespaces")
        if not trusted:
            raise status.not_found(kind, namespace)
        self.create(kind, "", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}})

    @staticmethod
    def _checked(kind: Kind, namespace: str, document: Any) -> JSON:
        if not isinstance(document, dict):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): not a JSON object"
            )
        document.setdefault("kind", kind.kind)
        document.setdefault("apiVersion", kind.api_version)
        if document["kind"] != kind.kind or document["apiVersion"] != kind.api_version:
            given = f"{document['kind']} in version {document['apiVersion']!r}".replace("'", '"')
            raise status.bad_request(
                f"{given} cannot be handled as a {kind.kind}: "
                f"the path is that of {kind.api_version} {kind.kind}"
            )
        metadata = document.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise status.bad_request(
                "json: cannot unmarshal metadata into Go struct field of type v1.ObjectMeta"
            )
        for field, value in list(metadata.items()):
            if value is None:
                del metadata[field]
        given = metadata.get("namespace") or namespace
        if given != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return document


def _precondition_failed(kind: Kind, record: Record, field: str, wanted: str) -> status.StatusFailure:
    name, actual = {"uid": "UID"}.get(field, "ResourceVersion"), record.document["metadata"][field]
    cause = f"Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {actual}"
    return status.conflict(kind, record.name, cause)


def _carry_over(kind: Kind, current: Record, document: JSON) -> None:
    """Set what clients cannot: identity, version, status, generation."""
    old, metadata = current.document, document["metadata"]
    for field in (*_SYSTEM_FIELDS, "resourceVersion"):
        metadata.pop(field, None)
        if field in old["metadata"]:
            metadata[field] = old["metadata"][field]
    if kind.namespaced:
        metadata["namespace"] = current.namespace
    if "status" in kind.subresources:
        document.pop("status", None)
        if "status" in old:
            document["status"] = old["status"]
    _set_defaults(kind, document)
    if kind.generation and document.get("spec") != old.get("spec"):
        metadata["generation"] = old["metadata"]["generation"] + 1


def _check_name(kind: Kind, name: str) -> None:
    if not name:
        required = "Required value: name or generateName is required"
        raise status.invalid(
            kind.kind, kind.group, "", field="metadata.name", message=required, reason="FieldValueRequired"
        )
    if len(name) > 253 or _SUBDOMAIN_PATTERN.fullmatch(name) is None:
        message = f'Invalid value: "{name}": {_SUBDOMAIN_RULE}'
        raise status.invalid(kind.kind, kind.group, name, field="metadata.name", message=message)


def _check_content(kind: Kind, namespace: str, document: JSON) -> None:
    """Apply the validation of a few kinds."""
    if kind.key == kinds.DEFINITIONS:
        _check_definition(document)
    elif kind.key == ("", "events"):
        involved = (document.get("involvedObject") or {}).get("namespace") or ""
        if involved != namespace and (involved or namespace != "default"):
            message = f'Invalid value: "{involved}": does not match event.namespace'
            name = document["metadata"].get("name", "")
            raise status.invalid(
                kind.kind, kind.group, name, field="involvedObject.namespace", message=message
            )


def _check_definition(document: JSON) -> None:
    """Raise 422 for an invalid definition, 501 for one that only the real API server can serve."""
    name = document["metadata"]["name"]
    spec = document.get("spec") or {}
    names = spec.get("names") or {}
    versions = spec.get("versions") or []
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    required: list[tuple[str, Any]] = [
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.scope", spec.get("scope")),
        ("spec.versions", versions),
    ]
    for field, value in required:
        if not value:
            raise _invalid_definition(name, field, "Required value", "FieldValueRequired")
    if name != wanted:
        message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        raise _invalid_definition(name, "metadata.name", message, "FieldValueInvalid")
    if sum(bool(version.get("served")) for version in versions) > 1:
        raise status.not_built("serving a custom kind in several versions", "serve one of them")


def _invalid_definition(name: str, field: str, message: str, reason: str) -> status.StatusFailure:
    return status.invalid(
        "CustomResourceDefinition", kinds.DEFINITIONS[0], name, field=field, message=message, reason=reason
    )


def _set_defaults(kind: Kind, document: JSON) -> None:
    """Set the few defaults that clients of an autoscaler can observe."""
    if kind.key in _SCALED:
        spec = document.setdefault("spec", {})
        if spec.get("replicas") is None:
            spec["replicas"] = 1
        document.setdefault("status", {"replicas": 0})
    elif (kind.group, kind.plural) == ("", "pods"):
        document.setdefault("status", {}).setdefault("phase", "Pending")
    elif (kind.group, kind.plural) == ("", "namespaces"):
        document["metadata"].setdefault("labels", {}).setdefault(
            "kubernetes.io/metadata.name", document["metadata"]["name"]
        )
        document.setdefault("spec", {})
        document.setdefault("status", {}).setdefault("phase", "Active")
    elif kind.key == ("autoscaling", "horizontalpodautoscalers"):
        document.setdefault("spec", {}).setdefault("minReplicas", 1)
    elif kind.key == kinds.DEFINITIONS:
        document.setdefault("status", kinds.definition_status(document))
