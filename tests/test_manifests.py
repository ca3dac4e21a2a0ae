"""The shipped manifests hold together: rights are what the example rules need and no more."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.config import rulesfile
from adapter.model import resources
from adapter.rules import compile as compiler
from tests.support.kubectl import Kubectl

MANIFESTS = Path(__file__).parent.parent / "manifests"
READ = {"get", "list", "watch"}


def _documents(text: str) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_kustomize_renders_them(kubectl: Kubectl) -> None:
    finished = await kubectl.run("http://127.0.0.1:1", "kustomize", str(MANIFESTS))
    assert finished.status == 0, finished.stderr
    documents = _documents(finished.stdout)
    assert set(documents) == {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap"}
    assert documents["ConfigMap"]["metadata"] == {"name": "fastpath-rules", "namespace": "fastpath"}
    assert documents["ConfigMap"]["data"] == {"config.yaml": (MANIFESTS / "rules.yaml").read_text()}
    account = documents["ServiceAccount"]["metadata"]
    [subject] = documents["ClusterRoleBinding"]["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


def test_rights_are_to_read_the_kinds_that_rules_name() -> None:
    rules = _documents((MANIFESTS / "rbac.yaml").read_text())["ClusterRole"]["rules"]
    assert all(set(rule["verbs"]) == READ for rule in rules)
    granted = {(group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]}
    known = {(resource.group, resource.plural) for resource in resources.BUILTIN}
    assert granted <= known - {("", "secrets"), ("", "configmaps")}
    config = rulesfile.parse_rules((MANIFESTS / "rules.yaml").read_text(), "rules.yaml").config
    for rule in config.rules:
        for override in rule.resources.overrides:
            named = resources.BUILTIN.lookup(override.resource, override.group or None)
            assert named is not None
            assert (named.group, named.plural) in granted


def test_example_rules_have_no_fault() -> None:
    parsed = rulesfile.parse_rules((MANIFESTS / "rules.yaml").read_text(), "rules.yaml")
    assert (parsed.faults, parsed.fatal) == ((), ())
    rules, faults = compiler.compile_rules(parsed.config, resources.BUILTIN)
    assert faults == ()
    assert (len(rules.custom), len(rules.external)) == (3, 1)
