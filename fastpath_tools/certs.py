"""`fastpath certs`: the Secret of the Deployment, the caBundle of the APIServices, a ConfigMap for scrapers.

It contacts no cluster. The key of the new certificate authority is not kept: each renewal makes a new one.
"""

import base64
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from adapter.cli import command_line
from adapter.compose.clock import SystemClock
from adapter.config import checks
from adapter.config.option_fields import Command, option, renamed, text_option
from adapter.config.pflag import FlagType
from adapter.errors import Fault, InputError
from adapter.model import visible
from adapter.model.objects import apiservices
from adapter.model.objects.apiservices import ServiceReference
from adapter.server import tls
from fastpath_tools.live.cluster_options import AUTHORITIES, DEFAULT_GROUPS, GROUPS, SECRET, GroupsOptions

CONFIG_MAP_FILE = "ca-configmap.yaml"

_REGISTRATION = "fastpath.io/apiservice"  # the label of the APIServices in the manifests
_LABELS = {"app.kubernetes.io/name": "fastpath", "app.kubernetes.io/part-of": "fastpath"}

MAX_DAYS = 3650

_certificate_text = partial(text_option, group="Certificate", check=checks.is_given)


@dataclass(frozen=True, kw_only=True)
class CertsOptions(GroupsOptions):
    groups: tuple[str, ...] = GROUPS(
        DEFAULT_GROUPS, f"API groups that are registered: {', '.join(apiservices.VERSIONS)}."
    )
    days: int = option(
        FlagType.INT,
        "365",
        "How many days certificate and authority are valid.",
        group="Certificate",
        check=lambda days: "" if 1 <= days <= MAX_DAYS else f"expected 1 to {MAX_DAYS}",
    )
    previous: str = _certificate_text(
        "File with the certificate authorities in force now (ca.crt of the Secret in use): the caBundle then "
        "holds them too, so that it can be applied before the certificate changes.",
        metavar="file",
    )
    out_dir: str = _certificate_text(
        "Folder to write into, as a kustomize component; a new one, or one without these files. Without it "
        "all goes to standard output.",
        metavar="folder",
    )


COMMAND = Command(
    verb="certs",
    options=CertsOptions,
    about="""\
Makes a serving certificate for Fastpath's Service and prints, as YAML, the Secret with it and a
ConfigMap with its certificate authorities, which Prometheus reads. On standard error it prints the
commands that set the caBundle of the APIServices. It contacts no cluster. The output holds a
private key.

With --out-dir the files go into a folder, which is a kustomize component that also sets the
caBundle: secret.yaml, ca-configmap.yaml, ca.crt. To renew, give the old ca.crt as --previous and
apply in the order that is printed then: the new certificate is trusted before it is served.
""",
    deprecated=(renamed("output", "out-dir", shorthand="o"),),
)


@command_line.verb(COMMAND)
def main(options: CertsOptions) -> int:
    """Make certificates. InputError for a wrong command line and for files that cannot be used."""
    service = options.reference
    now = datetime.fromtimestamp(SystemClock().wall(), UTC)
    previous = _read_authorities(options.previous, now) if options.previous else b""
    valid = timedelta(days=options.days)
    names = service_names(service.name, service.namespace)
    stamp = f"{now:%Y%m%d%H%M%S}"  # authorities in one bundle are told apart by name
    issued = tls.issue(service.name, f"fastpath-ca-{stamp}", names, now=now, valid=valid)
    authorities = issued.authority + previous
    bundle = base64.b64encode(authorities).decode()
    head = f"# Made by `fastpath certs` for {service}, good until {now + valid:%Y-%m-%d}.\n"
    pair = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": issued.authority}
    # what the Deployment mounts; ca.crt is for clients, and for the next renewal
    secret = head + _object(
        "Secret",
        ServiceReference(service.namespace, SECRET),
        type="kubernetes.io/tls",
        data={name: base64.b64encode(content).decode() for name, content in pair.items()},
    )
    # scrapers need not read the Secret with the key
    place = ServiceReference(service.namespace, AUTHORITIES)
    config_map = head + _object("ConfigMap", place, data={"ca.crt": authorities.decode()})
    if not options.out_dir:
        sys.stdout.write(f"{secret}---\n{config_map}")
        sys.stderr.write("Make the API server trust the certificate before Fastpath serves it:\n")
        # not server-side apply: kubectl warns at length if the APIService was applied from the client before
        patch = json.dumps({"spec": {"caBundle": bundle}})
        for name in apiservices.names_of(options.groups):
            sys.stderr.write(f"kubectl patch apiservice {name} --type=merge -p '{patch}'\n")
        return 0
    files = {
        "kustomization.yaml": head + _dump(_component(bundle)),
        "secret.yaml": secret,
        CONFIG_MAP_FILE: config_map,
        "ca.crt": issued.authority.decode(),
    }
    _write(Path(options.out_dir), files)
    lines = [f"wrote {', '.join(files)} into {options.out_dir}; secret.yaml holds the private key"]
    if options.previous:
        folder, step = Path(options.previous).parent, "Replace the old folder with this one"
        if not (folder / CONFIG_MAP_FILE).exists():  # the old authorities come from somewhere else
            folder = Path(options.out_dir)
            step = f"List {folder} among the components of your kustomization"
        lines += [
            f"{step}, then apply the authorities before the certificate:",
            f"kubectl apply -f {folder / CONFIG_MAP_FILE}",
            f"kubectl apply -k . -l {_REGISTRATION}",
            "kubectl apply -k .",
        ]
    command_line.show(visible.join(lines))
    return 0


def _object(kind: str, place: ServiceReference, **fields: Any) -> str:
    metadata = {"name": place.name, "namespace": place.namespace, "labels": _LABELS}
    return _dump({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})


def _component(bundle: str) -> dict[str, Any]:
    """Return the kustomize component that adds both objects, and the bundle to each APIService."""
    operation = {"op": "add", "path": "/spec/caBundle", "value": bundle}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["secret.yaml", CONFIG_MAP_FILE],
        "patches": [{"target": {"kind": "APIService"}, "patch": _dump([operation])}],
    }


def _dump(document: object) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=1_000_000)
    return text


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service in a cluster; kube-apiserver uses ``<service>.<namespace>.svc``."""
    within = f"{service}.{namespace}"
    return (service, within, f"{within}.svc", f"{within}.svc.cluster.local")


def _read_authorities(name: str, now: datetime) -> bytes:
    """Return the authorities of a file that have not expired, as PEM."""
    try:
        certificates = x509.load_pem_x509_certificates(Path(name).read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it holds no certificate"
        fault = Fault("--previous", name, f"expected a PEM file of authorities: {reason}")
        raise InputError([fault]) from error
    good = (certificate for certificate in certificates if certificate.not_valid_after_utc > now)
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in good)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files, readable by their owner only. An existing file is kept: it may hold the key in use."""
    for name in files:
        if (folder / name).exists():
            raise InputError([Fault("--out-dir", str(folder / name), "exists: expected a new folder")])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(content)
    except OSError as error:
        fault = Fault("--out-dir", str(folder), f"expected a folder to write into: {error.strerror}")
        raise InputError([fault]) from error
