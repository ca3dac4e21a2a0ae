"""Who this process is in the cluster: the name and namespace of its Pod.

What lives here: where that is written down. The law: the environment (the downward API) before what the system says.
"""

import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_pod_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return `POD_NAME`, else the host's name, which in a Pod without host network is the Pod's."""
    return environment.get("POD_NAME") or socket.gethostname()


def find_namespace(environment: Mapping[str, str] = os.environ, file: Path = NAMESPACE_FILE) -> str:
    """Return `POD_NAMESPACE`, else what the service account says, "" outside of a cluster."""
    if found := environment.get("POD_NAMESPACE"):
        return found
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def new_identity(pod_name: str) -> str:
    """Return an identity for one process: the Pod's name, and what tells its restarted containers apart."""
    return f"{pod_name}_{uuid.uuid4()}"
