"""Whether the account of a scaler may patch pods, and whether a policy limits that to one annotation.

A right to patch pods is a right to change their images, which RBAC cannot limit. The component
idle-scale-down grants it together with a ValidatingAdmissionPolicy. The account is that of the pods that
scale: it stands in the Deployment that runs `fastpath scale`, or `fastpath serve --scaler`.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.model.identity import AccessVerdict
from adapter.model.objects.api_objects import ObjectMeta, Struct
from adapter.server.auth.authorization import Attributes
from fastpath_tools.live import reading
from fastpath_tools.live.api_objects import PodDocumentSpec

RULES = "b61fe4f02fe35e8c834b4906cf6a9635b8ed398ffa3962972d2d1e2748ec15cd"
"""What the shipped policy says besides its account, as `digest` has it."""

_ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmission"
_DEFAULTS: Mapping[str, object] = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "scope": "*",
}
"""Fields that the API server adds to a policy."""


class PodTemplate(Struct, frozen=True):
    spec: PodDocumentSpec = PodDocumentSpec()


class DeploymentSpec(Struct, frozen=True):
    template: PodTemplate = PodTemplate()


class DeploymentDocument(Struct, frozen=True):
    spec: DeploymentSpec = DeploymentSpec()


class AdmissionPolicy(Struct, frozen=True):
    """A ValidatingAdmissionPolicy."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class PolicyBindingSpec(Struct, frozen=True):
    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()
    match_resources: dict[str, Any] | None = None


class PolicyBinding(Struct, frozen=True):
    """A ValidatingAdmissionPolicyBinding."""

    spec: PolicyBindingSpec = PolicyBindingSpec()


class ServiceAccount(NamedTuple):
    """A ServiceAccount."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"ServiceAccount {self.namespace}/{self.name}"

    @property
    def subject(self) -> dict[str, object]:
        """The user that it is for the API server, with its groups."""
        groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{self.namespace}",
            "system:authenticated",
        ]
        return {"user": f"system:serviceaccount:{self.namespace}:{self.name}", "groups": groups}

    @property
    def condition(self) -> str:
        """The expression of the policy that is for it."""
        return f"request.userInfo.username == 'system:serviceaccount:{self.namespace}:' + '{self.name}'"


class AccessReview(Struct, frozen=True):
    status: AccessVerdict = AccessVerdict(allowed=False)


async def is_allowed(
    client: KubernetesClient, access: Attributes, account: ServiceAccount | None = None
) -> bool | None:
    """Return whether an account (None: ourselves) has a permission; None if we may not ask."""
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"
    spec = access.spec | ({} if account is None else account.subject)
    document = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    try:
        body = await client.create(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", document)
    except KubernetesError as error:
        if error.status == 403:
            return None
        raise
    verdict = body.decode(AccessReview, f"create {kind}").status
    return verdict.allowed and not verdict.denied


def _scales(words: Sequence[str]) -> bool:
    """Tell whether a container with this command line is a scaler."""
    program, *arguments = words or ("",)
    is_alone = program.rpartition("/")[2] == "fastpath" and arguments[:1] == ["scale"]
    return is_alone or not {"--scaler", "--scaler=true"}.isdisjoint(words)


async def find_accounts(client: KubernetesClient, namespace: str) -> tuple[ServiceAccount, ...]:
    """Return the accounts of the scalers in a namespace. KubernetesError."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    deployments = await reading.fetch_items(client, path, DeploymentDocument)
    pods = [one.spec.template.spec for one in deployments]
    names = {
        pod.service_account_name
        for pod in pods
        if any(_scales(container.words) for container in pod.containers)
    }
    return tuple(ServiceAccount(namespace, name) for name in sorted(names))


async def may_patch(client: KubernetesClient, account: ServiceAccount, namespace: str) -> bool | None:
    """Return whether an account may patch the pods of a namespace; None if we may not ask.

    KubernetesError.
    """
    access = Attributes("patch", resource="pods", namespace=namespace)
    return await is_allowed(client, access, account)


async def find_fault(client: KubernetesClient, account: ServiceAccount) -> str:
    """Return why no policy limits an account that may patch pods, "" if one does."""
    try:
        policies = await reading.fetch_items(client, f"{_ADMISSION}policies", AdmissionPolicy)
        bindings = await reading.fetch_items(client, f"{_ADMISSION}policybindings", PolicyBinding)
    except KubernetesError as error:
        if error.status == 404:
            return "the cluster has no ValidatingAdmissionPolicies, which Kubernetes has since 1.30"
        return f"whether a ValidatingAdmissionPolicy limits that is not known: {reading.why(error)}"
    return judge(account, policies, bindings)


def judge(
    account: ServiceAccount, policies: Iterable[AdmissionPolicy], bindings: Sequence[PolicyBinding]
) -> str:
    """Return why no policy limits an account, "" if one does."""
    own = [policy for policy in policies if _conditions(policy) == (account.condition,)]
    faults = [_fault(policy, bindings) for policy in own]
    if "" in faults:
        return ""
    return faults[0] if faults else "no ValidatingAdmissionPolicy of idle-scale-down is for this account"


def _conditions(policy: AdmissionPolicy) -> tuple[str, ...]:
    return tuple(condition["expression"] for condition in policy.spec.get("matchConditions", ()))


def _fault(policy: AdmissionPolicy, bindings: Iterable[PolicyBinding]) -> str:
    """Return why a policy for the account does not limit it, "" if it does."""
    name = policy.metadata.name
    if digest(policy.spec) != RULES:
        return f"ValidatingAdmissionPolicy {name} has other rules than that of this version"
    bound = [binding.spec for binding in bindings if binding.spec.policy_name == name]
    if not bound:
        return f"ValidatingAdmissionPolicy {name} has no binding"
    denying = [spec for spec in bound if "Deny" in spec.validation_actions]
    if not denying:
        return f"no binding of ValidatingAdmissionPolicy {name} has the validation action Deny"
    if all(_without_defaults(spec.match_resources or {}) for spec in denying):
        return f"the binding of ValidatingAdmissionPolicy {name} leaves requests out by its matchResources"
    return ""


def digest(spec: Mapping[str, Any]) -> str:
    """Return the digest of a policy without its account, as it was written or as the API server shows it."""
    rules = {key: value for key, value in spec.items() if key != "matchConditions"}
    return hashlib.sha256(msgspec.json.encode(_without_defaults(rules), order="sorted")).hexdigest()


def _without_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_defaults(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_defaults(one)
        for key, one in value.items()
        if key not in _DEFAULTS or one != _DEFAULTS[key]
    }
