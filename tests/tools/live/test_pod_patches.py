"""Whether a policy limits the account of a scaler: whose account, and which policies and bindings count."""

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import yaml

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools.live import cluster_options, pod_patches
from fastpath_tools.live.cluster_options import KubeconfigOptions
from fastpath_tools.live.pod_patches import AdmissionPolicy, PolicyBinding, ServiceAccount
from tests.support.answers import answers
from tests.support.rendered import MANIFESTS

FILE = MANIFESTS / "chart" / "files" / "policies" / "idle-scale-down" / "policy.yaml"
ACCOUNT = ServiceAccount("fastpath", "fastpath-scaler")
NONE = "no ValidatingAdmissionPolicy of idle-scale-down is for this account"

Spec = dict[str, Any]


def shipped() -> tuple[Spec, Spec]:
    """Return policy and binding as the API server shows them."""
    policy, binding = yaml.safe_load_all(FILE.read_text())
    constraints = policy["spec"]["matchConstraints"]
    constraints |= {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    constraints["resourceRules"][0]["scope"] = "*"
    policy["status"] = {"observedGeneration": 1}
    return policy, binding


def judge(account: ServiceAccount, policies: Sequence[Spec], bindings: Sequence[Spec]) -> str:
    return pod_patches.judge(
        account,
        [msgspec.convert(policy, AdmissionPolicy) for policy in policies],
        [msgspec.convert(binding, PolicyBinding) for binding in bindings],
    )


def test_the_rules_are_those_of_the_manifest() -> None:
    policy, _ = yaml.safe_load_all(FILE.read_text())
    assert pod_patches.digest(policy["spec"]) == pod_patches.RULES
    assert pod_patches.digest(shipped()[0]["spec"]) == pod_patches.RULES


@pytest.mark.parametrize(
    ("account", "fault"),
    [
        (ACCOUNT, ""),
        (ServiceAccount("fastpath", "fastpath"), NONE),
        (ServiceAccount("shop", "fastpath-scaler"), NONE),
    ],
)
def test_whose_account_it_is(account: ServiceAccount, fault: str) -> None:
    policy, binding = shipped()
    assert judge(account, [policy], [binding]) == fault


@pytest.mark.parametrize(("path", "value", "fault"), answers("live/pod_patches", "changes"))
def test_a_policy_that_does_not_limit(path: str, value: Any, fault: str) -> None:
    policy, binding = shipped()
    at: Any = {"policy": policy["spec"], "binding": binding["spec"]}
    *way, last = path.split("/")
    for key in way:
        at = at[int(key) if key.isdigit() else key]
    at[last] = value
    assert judge(ACCOUNT, [policy], [binding]) == fault


def test_one_policy_that_limits_is_enough() -> None:
    policy, binding = shipped()
    broken = copy.deepcopy(policy)
    broken["metadata"]["name"], broken["spec"]["failurePolicy"] = "broken", "Ignore"
    assert judge(ACCOUNT, [broken, policy], [binding]) == ""
    audit = copy.deepcopy(binding)
    audit["spec"]["validationActions"] = ["Audit"]
    assert judge(ACCOUNT, [broken, policy], [audit, binding]) == ""
    assert "broken has other rules" in judge(ACCOUNT, [broken], [binding])
    assert judge(ACCOUNT, [], [binding]) == NONE


async def test_accounts_are_those_of_the_deployments_that_scale(tmp_path: Any) -> None:
    def deployment(name: str, *words: str, account: str | None = None) -> Spec:
        pod: Spec = {"containers": [{"name": "a", "command": list(words[:1]), "args": list(words[1:])}]}
        if account:
            pod["serviceAccountName"] = account
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "fastpath"},
            "spec": {"template": {"spec": pod}},
        }

    async with Cluster() as cluster:
        for document in (
            deployment("a", "fastpath", "scale", "--v=1", account="own"),
            deployment("b", "/usr/bin/fastpath", "scale"),
            deployment("c", "fastpath", "serve", "--scaler", account="serving"),
            deployment("d", "fastpath", "serve", "--scaler=true", account="own"),
            deployment("e", "fastpath", "serve", "--scaler=false", account="not"),
            deployment("f", "kubectl", "scale", account="not"),
            deployment("g", account="not"),
        ):
            cluster.create(document)
        options = KubeconfigOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        async with cluster_options.connect(options) as client:
            accounts = await pod_patches.find_accounts(client, "fastpath")
            assert [account.name for account in accounts] == ["default", "own", "serving"]
            assert await pod_patches.find_accounts(client, "shop") == ()
