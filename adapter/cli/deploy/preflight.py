"""`fastpath preflight`: who serves the metrics APIs of a cluster now, and whether the manifests may be applied.

Reads and asks; changes nothing. Whose an APIService is, is `model.apiservices`' judgement.
"""

import asyncio
import os
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from adapter.cli.deploy import flags
from adapter.cli.deploy.flags import PreflightOptions
from adapter.compose import app
from adapter.errors import Fault, InputError
from adapter.kubernetes import apiservices as registrations
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.apiservices import ResourceAttributes, Subject
from adapter.kubernetes.client import KubernetesClient
from adapter.model import apiservices
from adapter.model.apiservices import Finding, Owner
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

ABOUT = (
    "Says who serves the metrics APIs of a cluster now and whether the autoscaler's controller may read them. Changes nothing.",
    "Exit status: 0 when every group that counts is free or ours, 1 when one belongs to another server or the cluster cannot be asked.",
    "Without --groups, custom.metrics.k8s.io counts, and each group that is registered to Fastpath; the others are only shown.",
)

_HPA = Subject(
    "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
)
_READS = {
    "custom.metrics.k8s.io": ResourceAttributes("get", "custom.metrics.k8s.io", "*"),
    "external.metrics.k8s.io": ResourceAttributes("list", "external.metrics.k8s.io", "*"),
    "metrics.k8s.io": ResourceAttributes("list", "metrics.k8s.io", "pods"),
}
"""What the controller asks of each group."""

READERS = {
    "custom.metrics.k8s.io": "fastpath-custom-metrics-reader",
    "external.metrics.k8s.io": "fastpath-external-metrics-reader",
    "metrics.k8s.io": "fastpath-resource-metrics-reader",
}
"""The shipped ClusterRole that has that right."""


def main(arguments: Sequence[str]) -> int:
    """Ask; 0 when every group that counts is free or ours, else 1. KubernetesError when the cluster cannot be asked."""
    if flags.asks_for_help(arguments, flags.PREFLIGHT):
        print(flags.render_help("preflight", ABOUT, flags.PREFLIGHT), end="")
        return 0
    options = flags.parse_preflight(arguments)
    return asyncio.run(_run(options))


async def _run(options: PreflightOptions) -> int:
    clock = app.SystemClock()
    kubeconfig = find_kubeconfig(options.kubeconfig)
    configuration = await credentials.load_configuration(
        kubeconfig, clock, ProblemLog(Monitoring(), clock), flag="--kubeconfig"
    )
    async with await kubernetes.connect(configuration, random=random.random, flag="--kubeconfig") as client:
        findings = await _judge(client, options)
        groups = options.groups or _concerned(findings)
        foreign = _report_owners(findings, groups)
        await _report_rights(client, groups)
    return 1 if foreign else 0


async def _judge(client: KubernetesClient, options: PreflightOptions) -> list[Finding]:
    """Return whose each APIService is, of the groups given or of all."""
    return [
        apiservices.judge(name, await registrations.fetch_registration(client, name), options.service)
        for name in apiservices.names_of(options.groups or apiservices.VERSIONS)
    ]


def _concerned(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the groups that count where none was given: the one that the manifests always register, and those of ours."""
    ours = {_group_of(finding) for finding in findings if finding.owner is Owner.OURS}
    return tuple(group for group in apiservices.VERSIONS if group == flags.DEFAULT_GROUPS or group in ours)


def _group_of(finding: Finding) -> str:
    return finding.name.partition(".")[2]


def _report_owners(findings: Sequence[Finding], groups: Sequence[str]) -> int:
    """Print whose each APIService is; return how many of `groups` belong to another server."""
    width = max(len(finding.name) for finding in findings)
    foreign = 0
    for finding in findings:
        print(f"{finding.name:<{width}}  {finding.state}")
        if finding.owner is Owner.FOREIGN and _group_of(finding) in groups:
            foreign += 1
            _complain(f"{finding.name} belongs to {finding.state}: {finding.advice}")
    return foreign


async def _report_rights(client: KubernetesClient, groups: Iterable[str]) -> None:
    """Print which rights are missing. None of this is a refusal: rights come with the manifests, or from another source."""
    for verb in ("create", "patch"):
        if not await registrations.is_allowed(
            client, ResourceAttributes(verb, "apiregistration.k8s.io", "apiservices")
        ):
            _complain(f"you may not {verb} APIServices: whoever applies the manifests must")
    for group in groups:
        access = _READS[group]
        allowed = await registrations.is_allowed(client, access, _HPA)
        what = f"the autoscaler's controller may {access.verb} {access.resource} of {group}"
        if allowed is None:
            _complain(f"whether {what} is not known: you may not create SubjectAccessReviews")
            return
        if allowed:
            print(what)
            continue
        role = READERS[group]
        remedy = (
            f"kubectl create clusterrolebinding {role}-hpa --clusterrole={role} "
            "--serviceaccount=kube-system:horizontal-pod-autoscaler"
        )
        _complain(f"{what.replace(' may ', ' may not ')}: {remedy}")


def _complain(sentence: str) -> None:
    print(f"fastpath preflight: {sentence}", file=sys.stderr)


def find_kubeconfig(given: str) -> Path | None:
    """Return the file given, or the one that kubectl would take; None leaves the pod's service account."""
    if given:
        return Path(given)
    listed = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if len(listed) > 1:
        raise InputError([Fault("$KUBECONFIG", "", "names several files: expected one, or --kubeconfig")])
    if listed:
        return Path(listed[0])
    usual = Path("~/.kube/config").expanduser()
    return usual if usual.exists() else None
