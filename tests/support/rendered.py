"""Rendered manifests: kubectl's kustomize, the objects it gives, and what RBAC among them allows.

Rights are computed as Kubernetes' RBAC does: additive, "*" for all, `pods/status` apart from `pods`, names
where a rule has some. Of the roles that every cluster has, the three that matter here are written out.
"""

import functools
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from adapter.config.options import SERVE, Options
from fastpath_sandbox.apiserver.requests import Request
from tests.support import tools
from tests.support.objects import api_service, plain

ROOT = Path(__file__).parent.parent.parent
MANIFESTS = ROOT / "manifests"
OLDEST = (1, 27)
"""The first kubectl with kustomize v5."""

JSON = dict[str, Any]

_DISCOVERED = "/api /api/* /apis /apis/* /openapi /openapi/* /readyz /version"
BUILT_IN: Mapping[tuple[str, str, str], Sequence[JSON]] = {
    ("ClusterRole", "", "system:auth-delegator"): (
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ),
    ("ClusterRole", "", "system:discovery"): ({"nonResourceURLs": _DISCOVERED.split(), "verbs": ["get"]},),
    ("Role", "kube-system", "extension-apiserver-authentication-reader"): (
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        },
    ),
}


class Objects:
    """The objects of one rendering."""

    def __init__(self, documents: Iterable[JSON]) -> None:
        self.documents = [document for document in documents if document]

    def all(self, kind: str) -> list[JSON]:
        """Return the objects of a kind."""
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, name: str | None = None) -> JSON:
        """Return the only object of a kind, or the one of that name."""
        found = [each for each in self.all(kind) if name is None or each["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} objects {kind} {name or ''}"
        return found[0]

    def of(self, deployment: str) -> "Objects":
        """Return the same objects with this Deployment alone, for questions about its pods."""
        self.one("Deployment", deployment)
        return Objects(
            each
            for each in self.documents
            if each["kind"] != "Deployment" or each["metadata"]["name"] == deployment
        )

    @property
    def pod(self) -> JSON:
        """Return the pod template's spec of the only Deployment."""
        spec: JSON = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> JSON:
        (container,) = self.pod["containers"]
        found: JSON = container
        return found

    @property
    def options(self) -> Options:
        """Return what the arguments of the only Deployment mean; none is without effect."""
        options, notices = SERVE.parse(self.container["args"])
        assert notices == ()
        return options


class Want(NamedTuple):
    """What someone wants to do.

    `name` is the object's; a list narrowed by metadata.name counts as about that name.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @classmethod
    def of(cls, request: Request) -> "Want":
        """Return what a request to a sandbox wanted to do."""
        if not request.verb:
            return cls(request.method.lower(), path=request.path)
        parts = request.path.strip("/").split("/")
        group = parts[1] if parts[0] == "apis" else ""
        field, _, name = request.query.get("fieldSelector", "").partition("=")
        narrowed = name if field == "metadata.name" else ""
        return cls(request.verb, group, request.resource, request.namespace, request.name or narrowed)


class Rights:
    """What the rendered and the built-in roles let one service account do; every account may discover."""

    def __init__(self, objects: Objects, account: str, namespace: str) -> None:
        self.grants: list[tuple[str | None, JSON]] = [
            (None, rule) for rule in BUILT_IN["ClusterRole", "", "system:discovery"]
        ]
        for kind in ("ClusterRoleBinding", "RoleBinding"):
            for binding in objects.all(kind):
                subjects = [
                    (each["kind"], each.get("namespace"), each["name"]) for each in binding["subjects"]
                ]
                if ("ServiceAccount", namespace, account) in subjects:
                    within = binding["metadata"].get("namespace") if kind == "RoleBinding" else None
                    self.grants += [
                        (within, rule) for rule in _rules(objects, binding["roleRef"], within or "")
                    ]

    def allow(self, want: Want) -> bool:
        """Return whether some rule allows it."""
        return any(
            (within is None or within == want.namespace) and covers(rule, want)
            for within, rule in self.grants
        )

    def verbs_on(self, *resources: str) -> set[str]:
        """Return every verb that is granted on one of `resources` (or on all), in whatever group."""
        return {
            verb
            for _, rule in self.grants
            if {"*", *resources} & set(rule.get("resources", ()))
            for verb in rule["verbs"]
        }


def _rules(objects: Objects, reference: JSON, namespace: str) -> Sequence[JSON]:
    kind, name = reference["kind"], reference["name"]
    key = (kind, namespace if kind == "Role" else "", name)
    if key in BUILT_IN:
        return BUILT_IN[key]
    role = objects.one(kind, name)
    chosen = [
        each["matchLabels"].items()
        for each in role.get("aggregationRule", {}).get("clusterRoleSelectors", ())
    ]
    parts = [
        each
        for each in objects.all("ClusterRole")
        if any(labels <= each["metadata"].get("labels", {}).items() for labels in chosen)
    ]
    return [rule for each in (role, *parts) for rule in each.get("rules", ())]


def covers(rule: JSON, want: Want) -> bool:
    """Return whether a rule of a role allows it."""
    if not {"*", want.verb} & set(rule["verbs"]):
        return False
    if want.path:
        return any(
            want.path == url or (url.endswith("*") and want.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs", ())
        )
    return (
        bool({"*", want.group} & set(rule.get("apiGroups", ())))
        and bool({"*", want.resource} & set(rule.get("resources", ())))
        and ("resourceNames" not in rule or want.name in rule["resourceNames"])
    )


@functools.cache
def kubectl_version() -> tuple[int, int]:
    """Return kubectl's version; the test is skipped where there is no kubectl."""
    program = tools.require("kubectl", "kubernetes-client")
    done = tools.call(program, "version", "--client", "--output=json")
    found = re.match(r"v(\d+)\.(\d+)", json.loads(done.stdout)["clientVersion"]["gitVersion"])
    assert found is not None
    return int(found[1]), int(found[2])


def render(folder: Path) -> Objects:
    """Return what `kubectl kustomize` makes of a folder.

    Skips where kubectl is older than kustomize v5, and says so.
    """
    program = tools.require("kubectl", "kubernetes-client")
    if kubectl_version() < OLDEST:
        written = ".".join(map(str, kubectl_version()))
        pytest.skip(
            f"kubectl {written} has no kustomize v5 (1.27 does): only the plain files of manifests/base are "
            "checked"
        )
    done = tools.call(program, "kustomize", folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr  # kustomize warns of fields that it will drop
    return Objects(yaml.load_all(done.stdout, yaml.CSafeLoader))


def read_base() -> Objects:
    """Return the objects of manifests/base without kubectl: its files, the directories that
    it includes, and the ConfigMap of its rules.
    """
    base = MANIFESTS / "base"
    kustomization = yaml.safe_load((base / "kustomization.yaml").read_text())
    return Objects(_plain(base, kustomization))


def _plain(base: Path, kustomization: JSON) -> Iterator[JSON]:
    for name in kustomization["resources"]:
        if (base / name).is_dir():
            yield from _plain(base / name, yaml.safe_load((base / name / "kustomization.yaml").read_text()))
        else:
            yield from yaml.safe_load_all((base / name).read_text())
    for generator in kustomization.get("configMapGenerator", ()):
        data = {name: (base / name).read_text() for name in generator["files"]}
        yield plain("ConfigMap", generator["name"], generator["namespace"], data=data)


def write_overlay(
    folder: Path,
    components: Iterable[str | Path],
    resources: Iterable[Path] = (),
    *,
    manifests: Path = MANIFESTS,
    **fields: Any,
) -> Path:
    """Write a kustomization of base, resources and components (names below manifests/components, or paths)
    and return its folder; `fields` are further ones of the kustomization.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = [manifests / "components" / each if isinstance(each, str) else each for each in components]
    document = {
        "resources": [relative_path(path, folder) for path in (manifests / "base", *resources)],
        "components": [relative_path(path, folder) for path in listed],
        **fields,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder


@functools.cache
def compose(*components: str, kinds: bool = False, patches: str = "") -> Objects:
    """Return base with components, with `kinds` also our CustomResourceDefinitions; `patches` is YAML."""
    fields = {"patches": yaml.safe_load(patches)} if patches else {}
    with tempfile.TemporaryDirectory() as folder:
        return render(write_overlay(Path(folder), components, [MANIFESTS / "crd"] if kinds else (), **fields))


def assert_restricted(objects: Objects) -> None:
    """Assert that the pods of the only Deployment meet the restricted standard of Kubernetes, and more."""
    pod, container = objects.pod, objects.container
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all("hostPort" not in port for port in container["ports"])
    # nothing is written, and only the configuration is mounted
    assert all({*volume} - {"name"} <= {"configMap", "secret"} for volume in pod["volumes"])
    assert all(mount["readOnly"] and "subPath" not in mount for mount in container["volumeMounts"])
    assert pod["enableServiceLinks"] is False
    account = objects.one("ServiceAccount", pod["serviceAccountName"])
    assert (pod["automountServiceAccountToken"], account["automountServiceAccountToken"]) == (True, False)
    assert {"cpu", "memory"} == container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


def relative_path(path: Path, folder: Path) -> str:
    """Return the path from `folder`: kustomize takes no absolute ones."""
    return os.path.relpath(path.resolve(), folder.resolve())


def blocks(page: str, info: str) -> list[str]:
    """Return the fenced blocks of a page with exactly this info string."""
    return re.findall(rf"^```{info}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def section(page: str, heading: str) -> str:
    """Return what is below a heading of the second level."""
    (found,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return str(found)


def commands(page: str, heading: str) -> list[str]:
    """Return the command lines of a section, those that are indented, each whole."""
    joined = re.sub(r"\\\n *", "", section(page, heading))
    return re.findall(r"^    ((?:kubectl|fastpath|mkdir) .*)$", joined, re.MULTILINE)


def prometheus_adapter_registration(name: str, port: int = 443) -> JSON:
    """Return an APIService as the chart of prometheus-adapter has it."""
    made = api_service(name, {"namespace": "monitoring", "name": "prometheus-adapter", "port": port})
    made["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    return made
