"""The rights of idle scale-down on a real API server, installed from the chart, with a token of the scaler.

The account may change one annotation of pods. The policy refuses every other change by it, also where other
roles grant more than the component does.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
import yaml

from adapter.kubernetes.write.deletion_costs import MANAGER
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.objects.pods import COST_ANNOTATION as COST
from fastpath_tools.live import targets
from fastpath_tools.live.api_objects import PodDocument
from tests.chart import charts
from tests.e2e.conftest import REAL_ONLY
from tests.e2e.helm import Helm, HelmError, policy_kinds, remove_leftovers
from tests.support.processor import limited
from tests.support.verbs import Verb
from tests.world.clusters import ClusterUnderTest, Document, RealBackend

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.parametrize("fronted", REAL_ONLY, indirect=True),
]

MERGE, JSON_PATCH, APPLY = (
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
NAME = "fastpath-idle-scale-down"
POLICY = f"ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request"
NAMES = ("in its own pods", "in process")


class AdmissionAnswer(NamedTuple):
    """How the API server answers; `message` is that of a failure."""

    status: int
    message: str
    document: Document

    def assert_refused(self, rule: str, case: object) -> None:
        """Assert that it is a refusal by a rule of the policy."""
        assert self.status == 403, (case, self)
        assert f"{POLICY}: the scaler {rule}" in self.message, (case, self)


class Account:
    """The scaler's account: requests with its token, to pod `web` of a namespace."""

    def __init__(self, session: aiohttp.ClientSession, server: str, namespace: str) -> None:
        self._session = session
        self._url = f"{server}/api/v1/namespaces/{namespace}/pods"

    async def send(
        self, method: str, path: str = "/web", body: Any = None, content: str = "application/json"
    ) -> AdmissionAnswer:
        """Send one request; `path` is below the pods of the namespace."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content}
        async with self._session.request(method, self._url + path, data=data, headers=headers) as response:
            document = json.loads(await response.text())
            return AdmissionAnswer(response.status, document.get("message", ""), document)

    async def merge(self, change: Document, path: str = "/web") -> AdmissionAnswer:
        return await self.send("PATCH", path, change, MERGE)

    async def apply(self, *, pod: str = "web", force: bool = False, **fields: Any) -> AdmissionAnswer:
        """Apply fields of the pod on the server's side."""
        body = {"apiVersion": "v1", "kind": "Pod"} | fields
        query = f"?fieldManager={MANAGER}&force={json.dumps(force)}"
        return await self.send("PATCH", f"/{pod}{query}", body, APPLY)

    async def wait_refused(self, text: str) -> None:
        """Wait until a change of a label is refused with these words.

        Authorizer and admission follow roles and policies by watches of their own.
        """
        change, _ = CHANGES["label"]
        async with limited(30):
            while text not in (await self.merge(change, "/web?dryRun=All")).message:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def cost(self, value: str | None, *, force: bool = False) -> AdmissionAnswer:
        """Apply a deletion cost as the scaler does; None takes it back."""
        return await self.apply(force=force, metadata={} if value is None else {"annotations": {COST: value}})


def pod(namespace: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": namespace,
            "labels": {"app": "web"},
            "annotations": {"team": "a"},
            "finalizers": ["example.com/hold"],
        },
        "spec": {"containers": [{"name": "web", "image": "web:1", "resources": RESOURCES}]},
    }


OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "web",
    "uid": "3f1d2a3c-0000-4000-8000-000000000000",
}
RESOURCES = {"requests": {"cpu": "1"}}
CONTAINER = {"name": "web", "image": "evil:1", "resources": RESOURCES}

REQUEST, SPEC, METADATA, ANNOTATIONS, MANAGERS = (
    "may do nothing with pods but write the annotation",
    "may not change the spec or the status",
    "may not change labels, finalizers, owner references or the generateName",
    "may change no annotation of a pod but",
    "may not take fields of a pod from other field managers",
)
"""What the rules of the policy say, in their order."""

CHANGES: Mapping[str, tuple[Document, str]] = {
    "image": ({"spec": {"containers": [CONTAINER]}}, SPEC),
    "label": ({"metadata": {"labels": {"app": "other"}}}, METADATA),
    "new label": ({"metadata": {"labels": {"more": "a"}}}, METADATA),
    "annotation": ({"metadata": {"annotations": {"team": "b"}}}, ANNOTATIONS),
    "new annotation": ({"metadata": {"annotations": {"more": "a"}}}, ANNOTATIONS),
    "annotation beside the cost": ({"metadata": {"annotations": {COST: "-1", "more": "a"}}}, ANNOTATIONS),
    "finalizer": ({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}, METADATA),
    "owner reference": ({"metadata": {"ownerReferences": [OWNER]}}, METADATA),
}
"""Changes of the pod, as a merge patch and as an applied configuration have them, and what refuses them."""

REMOVALS: Mapping[str, tuple[Document, str]] = {
    "label": ({"metadata": {"labels": None}}, METADATA),
    "annotation": ({"metadata": {"annotations": {"team": None}}}, ANNOTATIONS),
    "every annotation": ({"metadata": {"annotations": None}}, ANNOTATIONS),
    "finalizer": ({"metadata": {"finalizers": None}}, METADATA),
    "generateName": ({"metadata": {"generateName": "other-"}}, METADATA),
    "managed fields": ({"metadata": {"managedFields": [{}]}}, MANAGERS),
}

EXTRA = (
    "pods",
    "pods/status",
    "pods/ephemeralcontainers",
    "pods/resize",
    "pods/eviction",
    "pods/binding",
    "bindings",
    "pods/exec",
)


class Installed(NamedTuple):
    cluster: ClusterUnderTest
    account: Account
    name: str

    async def stored(self) -> Document:
        """Return the pod without its version and its cost."""
        found: Document = json.loads(
            await self.cluster.kubectl(
                "get", "pod", "web", "-n", self.cluster.namespace, "-o", "json", "--show-managed-fields"
            )
        )
        found["metadata"].pop("resourceVersion")
        return found

    async def grant(self, verbs: Sequence[str], resources: Sequence[str]) -> None:
        """Bind the account to more than the component does."""
        name = f"more-{self.cluster.namespace}"
        verbs_, resources_ = (
            f"--{flag}={','.join(items)}" for flag, items in (("verb", verbs), ("resource", resources))
        )
        where = ("-n", self.cluster.namespace)
        subject = f"--serviceaccount={self.cluster.namespace}:{self.name}"
        await self.cluster.kubectl("create", "role", name, verbs_, resources_, *where)
        await self.cluster.kubectl("create", "rolebinding", name, f"--role={name}", subject, *where)


@pytest.fixture(scope="module", autouse=True)
def _runtime() -> None:
    charts.start_runtime()


@pytest.fixture(params=NAMES)
async def site(request: pytest.FixtureRequest, cluster: ClusterUnderTest) -> AsyncIterator[Installed]:
    """Return a cluster with the chart, and a pod; the policy is in force."""
    helm, namespace = Helm(cluster.admin_kubeconfig, cluster.namespace), cluster.namespace
    in_process = request.param == "in process"
    scaler = {"enabled": True, "inProcess": in_process, "idleScaleDown": {"enabled": True}}
    image = {"repository": "registry.example.com/fastpath"}
    values = {"scaler": scaler, "image": image, "crd": {"create": False}, "replicas": 0}
    await remove_leftovers(cluster)
    if not await policy_kinds(cluster):
        with pytest.raises(HelmError, match=r"idleScaleDown.enabled needs Kubernetes 1\.30 or newer"):
            await helm.install(charts.CHART, "fastpath", values)
        pytest.skip("the API server has no ValidatingAdmissionPolicies, so the chart refuses to install it")
    await cluster.create(pod(namespace))
    await helm.install(charts.CHART, "fastpath", values)
    try:
        assert isinstance(cluster.backend, RealBackend)
        name = "fastpath" if in_process else "fastpath-scaler"
        config = await cluster.backend.account(cluster, name, namespace)
        kubeconfig = yaml.safe_load(config.kubeconfig(cluster.directory / "account.kubeconfig").read_text())
        server = kubeconfig["clusters"][0]["cluster"]
        trust = ssl.create_default_context(cafile=server["certificate-authority"])
        headers = {"Authorization": f"Bearer {kubeconfig['users'][0]['user']['token']}"}
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            account = Account(session, server["server"], namespace)
            await account.wait_refused(POLICY)
            yield Installed(cluster, account, name)
    finally:
        await helm.uninstall("fastpath")
        await cluster.kubectl(
            "patch", "pod", "web", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
        )


async def test_the_cost_is_set_changed_and_taken_back(site: Installed) -> None:
    before = await site.stored()
    for value in ("-1", "-2", "-2", None, None, "-3", None):
        answer = await site.account.cost(value)
        assert answer.status == 200, answer.message
        expected = {"team": "a"} | ({} if value is None else {COST: value})
        assert answer.document["metadata"]["annotations"] == expected
    assert await site.stored() == before


async def test_no_other_change_is_accepted(site: Installed) -> None:
    before = await site.stored()
    for name, (change, rule) in CHANGES.items():
        (await site.account.merge(change)).assert_refused(rule, name)
        (await site.account.apply(force=True, **change)).assert_refused(rule, name)
    for name, (change, rule) in REMOVALS.items():
        (await site.account.merge(change)).assert_refused(rule, name)
    operation = {"op": "replace", "path": "/spec/containers/0/image", "value": "evil:1"}
    (await site.account.send("PATCH", body=[operation], content=JSON_PATCH)).assert_refused(SPEC, operation)
    assert await site.stored() == before


async def test_the_roles_grant_nothing_but_patches_of_pods(site: Installed) -> None:
    document = await site.stored()
    for method, path, body, content in (
        ("PUT", "/web", document, "application/json"),
        ("DELETE", "/web", None, "application/json"),
        ("POST", "", pod(site.cluster.namespace), "application/json"),
        *(("PATCH", f"/web/{plural.partition('/')[2]}", {}, MERGE) for plural in EXTRA[1:4]),
    ):
        answer = await site.account.send(method, path, body, content)
        assert answer.status == 403, (method, path, answer)
        assert "ValidatingAdmissionPolicy" not in answer.message, (method, path)


async def test_more_rights_are_limited_too(site: Installed) -> None:
    """Updates, subresources, creations and deletions are refused where other roles grant them."""
    account, namespace = site.account, site.cluster.namespace
    await site.grant(["create", "get", "update", "patch", "delete", "deletecollection"], EXTRA)
    before, served = await site.stored(), await site.cluster.kubectl("get", "--raw", "/api/v1")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web"},
        "target": {"kind": "Node", "name": "n"},
    }
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": namespace},
    }
    condition = {"type": "Ready", "status": "True"}
    debug = {"name": "debug", "image": "evil:1"}
    grown = {"name": "web", "resources": {"requests": {"cpu": "2"}}}
    strategic = "application/strategic-merge-patch+json"
    cost = {"metadata": {"annotations": {COST: "-1"}}}
    json_ = "application/json"
    cases: Sequence[tuple[str, str, Any, str, str]] = (
        ("PATCH", "/web/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}, strategic, REQUEST),
        ("PATCH", "/web/resize", {"spec": {"containers": [grown]}}, strategic, REQUEST),
        ("PATCH", "/web/status", {"status": {"conditions": [condition]}}, strategic, REQUEST),
        ("PATCH", "/web/status", cost, strategic, REQUEST),
        ("POST", "/web/eviction", eviction, json_, REQUEST),
        ("POST", "/web/binding", binding, json_, REQUEST),
        ("POST", "/../bindings", binding, json_, REQUEST),
        ("POST", "", pod(namespace) | {"metadata": {"name": "other"}}, json_, REQUEST),
        ("POST", "/web/exec?command=id", None, json_, REQUEST),
        ("DELETE", "/web", None, json_, REQUEST),
        ("DELETE", "", None, json_, REQUEST),
        *(("PUT", "/web", changed, json_, rule) for changed, rule in updates(before)),
    )
    for method, path, body, content, rule in cases:
        if path == "/web/resize" and '"pods/resize"' not in served:
            continue  # the API server has no such subresource, as those before 1.33
        async with limited(30):  # the authorizer follows roles by a watch of its own
            while "User" in (answer := await account.send(method, path, body, content)).message:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        answer.assert_refused(rule, (method, path, body))
    assert await site.stored() == before
    before["metadata"]["annotations"][COST] = "-1"
    answer = await account.send("PUT", f"/web?fieldManager={MANAGER}", before)
    assert answer.status == 200, "an update of the annotation alone"


def updates(document: Document) -> list[tuple[Document, str]]:
    """Return the pod with one of `CHANGES` each, and what refuses it."""
    changed = []
    for change, rule in CHANGES.values():
        copy = json.loads(json.dumps(document))
        for part in ("metadata", "spec"):
            for field, value in change.get(part, {}).items():
                copy[part][field] = copy[part].get(field, {}) | value if isinstance(value, dict) else value
        changed.append((copy, rule))
    return changed


async def test_a_cost_of_another_writer_is_theirs(site: Installed) -> None:
    """An apply conflicts with it, and the policy refuses to force it."""
    where = ("-n", site.cluster.namespace)
    assert (await site.account.cost("-1")).status == 200
    ours = msgspec.convert(await site.stored(), PodDocument, dec_hook=decode_scalar)
    assert targets.find_cost_writers([ours]) == ()
    await site.cluster.kubectl("annotate", "pod", "web", f"{COST}=100", "--overwrite", *where)
    before = await site.stored()
    document = msgspec.convert(before, PodDocument, dec_hook=decode_scalar)
    assert targets.find_cost_writers([document]) == (("kubectl-annotate", "web"),)
    assert (await site.account.cost("-2")).status == 409
    (await site.account.cost("-2", force=True)).assert_refused(MANAGERS, "force")
    merged = await site.account.merge({"metadata": {"annotations": {COST: None}}})
    merged.assert_refused(MANAGERS, "removal")
    for manager in ("kubectl-annotate", "other", ""):
        named = f"/web?fieldManager={manager}" if manager else "/web"
        answer = await site.account.merge({"metadata": {"annotations": {COST: "-2"}}}, named)
        assert (answer.status, "field manager" in answer.message) == (403, True), (manager, answer)
    assert (await site.account.cost(None)).status == 200
    assert await site.stored() == before


async def test_preflight_tells_whether_the_policy_is_in_force(
    site: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    preflight = Verb("preflight", site.cluster.admin_kubeconfig, capsys)
    # no server runs behind the APIServices of custom metrics
    where = f"--namespace={site.cluster.namespace}", "--groups=external.metrics.k8s.io"
    account = f"ServiceAccount {site.cluster.namespace}/{site.name}"
    finished = await preflight(*where)
    assert finished.status == 0, finished.err
    assert f"{account} may change the deletion cost of pods alone\n" in finished.out
    kinds = "validatingadmissionpolicybinding", "validatingadmissionpolicy"
    patch = ("--type=merge", "-p", '{"spec":{"validationActions":["Audit"]}}')
    await site.cluster.kubectl("patch", kinds[0], NAME, *patch)
    reasons = (
        f"no binding of ValidatingAdmissionPolicy {NAME} has the validation action Deny",
        f"ValidatingAdmissionPolicy {NAME} has no binding",
        "no ValidatingAdmissionPolicy of idle-scale-down is for this account",
    )
    for reason, kind in zip(reasons, (*kinds, None), strict=True):
        finished = await preflight(*where)
        assert finished.status == 1
        assert f"{account} may patch pods, and so change their images: {reason}: " in finished.err
        if kind is not None:
            await site.cluster.kubectl("delete", kind, NAME)


async def test_a_pod_that_is_gone_is_not_created(site: Installed) -> None:
    before = await site.account.send("GET", "")
    for annotations in ({COST: "-1"}, {}):
        answer = await site.account.apply(metadata={"name": "gone", "annotations": annotations}, pod="gone")
        assert answer.status == 422, answer
        assert answer.message.startswith('Pod "gone" is invalid: spec.containers: Required value')
    assert len(before.document["items"]) == len((await site.account.send("GET", "")).document["items"])


async def test_the_policy_has_no_warning_and_limits_no_other_user(site: Installed) -> None:
    policy = json.loads(
        await site.cluster.kubectl(
            "get", "validatingadmissionpolicy", "fastpath-idle-scale-down", "-o", "json"
        )
    )
    assert policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings", []) == []
    await site.cluster.kubectl("label", "pod", "web", "more=a", "-n", site.cluster.namespace)
