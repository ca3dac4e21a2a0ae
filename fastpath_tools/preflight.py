"""`fastpath preflight`: which server has the metrics APIs of a cluster, and what its scaler may do with pods.

It changes nothing in the cluster. `live.registrations` judges which server an APIService belongs to.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.cli import command_line
from adapter.compose.clock import SystemClock
from adapter.config.option_fields import Command
from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.model import visible
from adapter.model.objects import apiservices
from adapter.model.objects.apiservices import ServiceReference
from adapter.server.auth.authorization import Attributes
from fastpath_tools.live import cluster_options, pod_patches, reading, registrations
from fastpath_tools.live.cluster import LiveCluster
from fastpath_tools.live.cluster_options import DEFAULT_GROUPS, GROUPS, GroupsOptions, KubeconfigOptions
from fastpath_tools.live.facts import KEEP_ONE, overlap, standing_back, unlisted
from fastpath_tools.live.pod_patches import ServiceAccount
from fastpath_tools.live.registrations import Finding, Owner


@dataclass(frozen=True, kw_only=True)
class PreflightOptions(KubeconfigOptions, GroupsOptions):
    groups: tuple[str, ...] = GROUPS(
        "",
        f"API groups that Fastpath is to serve: {', '.join(apiservices.VERSIONS)}. Without it all are shown; "
        f"the exit status is about {DEFAULT_GROUPS} and those registered to Fastpath.",
    )
    output: str = command_line.output("text", "json", help_="text, or json for one JSON document.")


COMMAND = Command(
    verb="preflight",
    options=PreflightOptions,
    about="""\
Shows which server has the metrics APIs of a cluster now, and whether the HPA controller may read
them. It also shows whether the scaler may patch pods, which only a ValidatingAdmissionPolicy limits
to their deletion cost. The account is that of the Deployments in --namespace that run
`fastpath scale` or `fastpath serve --scaler`. It names the namespaces of scalers whose Leases show
that they do not share their work, and which of two installations stands back. It changes nothing.

Exit status: 0 when every group that counts is free or registered to Fastpath, 1 when one belongs to
another server or the API server does not reach Fastpath, when nothing limits a scaler that may
patch pods, when scalers of two installations have Leases and neither stands back, or when the cluster
cannot be asked, 2 when the command line or the kubeconfig is wrong.
""",
)

_HPA = ServiceAccount("kube-system", "horizontal-pod-autoscaler")
_READS = {
    "custom.metrics.k8s.io": Attributes("get", group="custom.metrics.k8s.io", resource="*"),
    "external.metrics.k8s.io": Attributes("list", group="external.metrics.k8s.io", resource="*"),
    "metrics.k8s.io": Attributes("list", group="metrics.k8s.io", resource="pods"),
}
"""What the HPA controller reads of each group."""

READERS = {
    "custom.metrics.k8s.io": "fastpath-custom-metrics-reader",
    "external.metrics.k8s.io": "fastpath-external-metrics-reader",
    "metrics.k8s.io": "fastpath-resource-metrics-reader",
}
"""The shipped ClusterRole with that permission."""


class _Report(NamedTuple):
    """What was found: sentences on what is right, and on what is not.

    As text each is printed at once, so that a cluster that stops answering takes none away.
    """

    is_text: bool
    rights: list[str]
    problems: list[str]

    def state(self, sentence: str) -> None:
        self.rights.append(sentence)
        if self.is_text:
            command_line.show(f"{sentence}\n")

    def complain(self, sentence: str) -> None:
        self.problems.append(sentence)
        command_line.tell("preflight", sentence)

    def document(self, findings: Sequence[Finding]) -> dict[str, Any]:
        services = [finding._asdict() | {"owner": finding.owner.value} for finding in findings]
        return {"apiServices": services, "rights": self.rights, "problems": self.problems}


@command_line.verb(COMMAND)
def main(options: PreflightOptions) -> int:
    """Ask; 0 when every group that counts is free or ours and the scaler's right to pods is limited, else 1.

    KubernetesError when the cluster cannot be asked.
    """
    return asyncio.run(_run(options))


async def _run(options: PreflightOptions) -> int:
    report = _Report(options.output == "text", [], [])
    async with cluster_options.connect(options) as client:
        fetched = {
            name: await registrations.fetch(client, name)
            for name in apiservices.names_of(options.groups or apiservices.VERSIONS)
        }
        findings = [
            registrations.judge(name, registration, options.reference)
            for name, registration in fetched.items()
        ]
        # the group that the manifests always register, and those that are registered to Fastpath
        ours = {DEFAULT_GROUPS} | {_group(finding) for finding in findings if finding.owner is Owner.OURS}
        groups = options.groups or tuple(group for group in apiservices.VERSIONS if group in ours)
        bad = _report_owners(report, findings, groups)
        if "metrics.k8s.io" in groups:
            stable, beta = (fetched[f"{version}.metrics.k8s.io"] for version in ("v1", "v1beta1"))
            if warning := registrations.describe_resource_versions(stable, beta, options.reference):
                report.complain(warning)
        await _report_rights(report, client, groups)
        unlimited = await _report_patches(report, client, options.namespace)
        doubled = await _report_scalers(report, client, options.reference)
    if options.output == "json":
        command_line.show(command_line.to_json(report.document(findings)))
    return 1 if bad or unlimited or doubled else 0


def _group(finding: Finding) -> str:
    return finding.name.partition(".")[2]


def _report_owners(report: _Report, findings: Sequence[Finding], groups: Sequence[str]) -> bool:
    """Report the owner of each APIService.

    Return whether another server owns one of `groups`, or whether one of ours is not available.
    """
    width = max(len(finding.name) for finding in findings)
    foreign, lost = False, dict[str, list[str]]()
    for finding in findings:
        if report.is_text:
            command_line.show(f"{finding.name:<{width}}  {visible.escape(finding.state)}\n")
        if finding.owner is Owner.OURS and finding.advice:
            lost.setdefault(finding.advice, []).append(finding.name)
        if finding.owner is Owner.FOREIGN and _group(finding) in groups:
            foreign = True
            report.complain(f"{finding.name} belongs to {finding.state}: {finding.advice}")
    for advice, names in lost.items():  # of several versions the reason is often the same
        report.complain(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not available: {advice}")
    return foreign or bool(lost)


async def _report_rights(report: _Report, client: KubernetesClient, groups: Iterable[str]) -> None:
    """Report which permissions are missing; not a failure, because the manifests may add them."""
    for verb in ("create", "patch"):
        access = Attributes(verb, group="apiregistration.k8s.io", resource="apiservices")
        if not await pod_patches.is_allowed(client, access):
            report.complain(
                f"you may not {verb} APIServices: the user who applies the manifests must be allowed to"
            )
    for group in groups:
        access = _READS[group]
        allowed = await pod_patches.is_allowed(client, access, _HPA)
        what = f"the HPA controller may {access.verb} {access.resource} of {group}"
        if allowed is None:
            report.complain(f"whether {what} is unknown: you may not create SubjectAccessReviews")
            return
        if allowed:
            report.state(what)
            continue
        role = READERS[group]
        remedy = (
            f"kubectl create clusterrolebinding {role}-hpa --clusterrole={role} "
            "--serviceaccount=kube-system:horizontal-pod-autoscaler"
        )
        report.complain(f"{what.replace(' may ', ' may not ')}: {remedy}")


async def _report_patches(report: _Report, client: KubernetesClient, namespace: str) -> bool:
    """Report which scalers may patch pods; return whether no policy limits one of them."""
    unlimited = False
    try:
        accounts = await pod_patches.find_accounts(client, namespace)
    except KubernetesError as error:
        report.complain(f"whether a scaler of {namespace} may patch pods is unknown: {reading.why(error)}")
        return unlimited
    for account in accounts:
        # a right in all namespaces is one in its own too
        allowed = await pod_patches.may_patch(client, account, namespace)
        if allowed is None:
            report.complain(
                f"whether {account} may patch pods is unknown: you may not create SubjectAccessReviews"
            )
        elif not allowed:
            report.state(f"{account} may not patch pods")
        elif fault := await pod_patches.find_fault(client, account):
            unlimited = True
            remedy = "apply the component idle-scale-down again, or take the right away"
            report.complain(f"{account} may patch pods, and so change their images: {fault}: {remedy}")
        else:
            report.state(f"{account} may change the deletion cost of pods alone")
    return unlimited


async def _report_scalers(report: _Report, client: KubernetesClient, reference: ServiceReference) -> bool:
    """Report where scalers that do not share slices have Leases; return whether two of these own slices."""
    leaders = await LiveCluster(client, SystemClock(), reference, "fastpath-scaler").leaders()
    if seen := overlap(leaders):
        report.complain(f"{seen}: {KEEP_ONE}")
    elif why := unlisted(leaders):
        report.complain(f"whether two installations scale the same targets is not known: {why}")
    if back := standing_back(leaders):
        report.state(visible.escape(back))
    return bool(seen)
