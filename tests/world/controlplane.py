"""A real control plane on loopback: etcd and kube-apiserver, as envtest lays them out, and controllers.

The module holds the programs, their keys, and kubeconfig files for users of any name and group. It ends all
that it starts, and nothing listens on any address but 127.0.0.1. There are no nodes: nothing runs the pods.
`clusters` holds the requests of the tests.

All methods block: code on an event loop calls them with `asyncio.to_thread`.
"""

import contextlib
import http.client
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support import tools
from tests.support.tls import Authority
from tests.support.tools import ServerProgram, StartError
from tests.world.frontproxy import NAME, FrontProxy

VARIABLE = "KUBEBUILDER_ASSETS"
"""Names the folder with kube-apiserver, etcd and kubectl; `setup-envtest use -p path` prints one.

etcd may come from PATH too, as Debian's package etcd-server has it. kube-controller-manager, which
setup-envtest leaves out, is among the server binaries of each Kubernetes release; without it the tests that
need controllers are skipped.
"""

CONTROLLERS = "kube-controller-manager"
AUDIT_LOG = "audit.log"
SHARDED = "ShardedListAndWatch"
"""The feature gate of lists and watches of ranges of hashes, alpha in 1.36."""

_HASTY = (
    # their names of before 1.28, which later versions take too
    "--controllers=horizontalpodautoscaling,deployment,replicaset,namespace,clusterrole-aggregation",
    "--kube-api-qps=200",  # so that it comes to each of twenty autoscalers in a second
    "--kube-api-burst=300",
)
_POLICY = "audit-policy.yaml"

_AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch"],
            "resources": [
                {"group": "apps", "resources": ["deployments/scale"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
        },
        # without their status, which stands for what kubelets write
        {"level": "Request", "verbs": ["patch"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "None"},
    ],
}
"""What the audit log has; `tests.e2e.scaleraudit` reads it."""

_METRICS_READ = [{"level": "Metadata", "resources": [{"group": "custom.metrics.k8s.io"}]}]


def find_assets() -> Path | None:
    """Return the folder that the environment names, None where it names none."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


def find_controllers() -> Path | None:
    """Return the controllers' program, None where the environment names none."""
    assets = find_assets()
    program = assets / CONTROLLERS if assets else None
    return program if program is not None and program.is_file() else None


def minor_of(program: Path) -> int:
    """Return the minor version of a program of Kubernetes."""
    return int(tools.call(program, "--version").stdout.split(".")[1])  # Kubernetes v1.36.2


def make_etcd(program: Path, directory: Path) -> ServerProgram:
    """Return an etcd that keeps its data in `directory`."""

    def command(port: int) -> list[str]:
        url = f"http://127.0.0.1:{port}"
        return [
            str(program),
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:0",  # a cluster of one has no peers
        ]

    def is_ready(port: int) -> bool:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/health")
            with connection.getresponse() as response:
                return response.status == 200 and b'"true"' in response.read()

    return ServerProgram("etcd", directory, command, is_ready)


def can_shard(program: Path) -> bool:
    """Tell whether a kube-apiserver has sharded lists and watches."""
    return SHARDED in tools.call(program, "--help").stdout


def make_api_server(
    program: Path, directory: Path, authority: Authority, etcd_url: str, front_proxy: FrontProxy
) -> ServerProgram:
    """Return a kube-apiserver: RBAC, `authority` for clients, `front_proxy` for aggregation.

    Pods need no service account: no controller makes one in each namespace. The policy of its audit log is in
    `directory`. From 1.36 on it shards lists and watches.
    """
    serving = authority.issue("127.0.0.1", "localhost", "kubernetes.default.svc")
    signing, verifying = _write_signing_keys(directory)
    sharded = [f"--feature-gates={SHARDED}=true"] if can_shard(program) else []
    client = authority.client_context(authority.issue(common_name="readiness", organization="system:masters"))

    def command(port: int) -> list[str]:
        return [
            str(program),
            f"--etcd-servers={etcd_url}",
            f"--cert-dir={directory / 'apiserver'}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={authority.file}",
            "--bind-address=127.0.0.1",
            # else it looks for a default route, which a sandbox may not have
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://127.0.0.1",
            f"--service-account-key-file={verifying}",
            f"--service-account-signing-key-file={signing}",
            "--authorization-mode=RBAC",
            *sharded,
            f"--audit-policy-file={directory / _POLICY}",
            f"--audit-log-path={directory / AUDIT_LOG}",
            "--audit-log-maxsize=4096",  # MB: a new file at 100 would be missed
            # no controller makes the accounts that pods would need
            "--disable-admission-plugins=ServiceAccount",
            # the aggregation layer; without --enable-aggregator-routing, with which a Service of type
            # ExternalName has no address
            f"--requestheader-client-ca-file={front_proxy.authorities}",
            f"--requestheader-allowed-names={NAME}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={front_proxy.identity}",
            f"--proxy-client-key-file={front_proxy.identity}",
        ]

    return ServerProgram("kube-apiserver", directory, command, lambda port: _is_well(port, "/readyz", client))


def make_controllers(
    program: Path, directory: Path, authority: Authority, kubeconfig: Path, flags: tuple[str, ...]
) -> ServerProgram:
    """Return a kube-controller-manager; `flags` say what it looks after, and how often.

    `kubeconfig` is that of the user system:kube-controller-manager. Each controller acts as a service account
    of its own, with the rights that every cluster gives it, and no more.
    """
    serving = authority.issue("127.0.0.1", "localhost")
    client = authority.client_context()

    def command(port: int) -> list[str]:
        return [
            str(program),
            f"--kubeconfig={kubeconfig}",
            # who may ask for anything but /healthz; without these it says at length that it does not know
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={directory / 'service-account.key'}",
            *flags,
        ]

    return ServerProgram(CONTROLLERS, directory, command, lambda port: _is_well(port, "/healthz", client))


class ControlPlane:
    """Etcd, an API server and optional controllers: a context manager that starts and ends them.

    `period` is that of the controller of HorizontalPodAutoscalers, in seconds. With 0 that controller runs
    alone with its defaults, and the audit log has its requests for metrics.
    """

    def __init__(self, assets: Path, directory: Path, authority: Authority, period: float = 1.0) -> None:
        etcd = _find_etcd(assets)
        missing = [
            name
            for name, is_there in (("etcd", etcd), ("kube-apiserver", (assets / "kube-apiserver").is_file()))
            if not is_there
        ]
        if missing or etcd is None:
            raise StartError(f"{VARIABLE} names {assets}, which lacks {' and '.join(missing)}")
        own_kubectl = assets / "kubectl"
        self.kubectl = str(own_kubectl) if own_kubectl.is_file() else ""
        """Path of the kubectl that came with it, "" where none did."""
        self._assets = assets
        self._directory = directory
        hasty = (f"--horizontal-pod-autoscaler-sync-period={period:g}s", *_HASTY)
        self._flags = hasty if period else ("--controllers=horizontalpodautoscaling",)
        policy = _AUDITED if period else _AUDITED | {"rules": _METRICS_READ}
        (directory / _POLICY).write_text(yaml.safe_dump(policy), encoding="utf-8")
        self.front_proxy = FrontProxy(directory)
        self.authority = authority
        """Whose client certificates are users."""
        self.audit_log = directory / AUDIT_LOG
        self._etcd = make_etcd(etcd, directory)
        self._server: ServerProgram | None = None
        self._controllers: ServerProgram | None = None

    def __enter__(self) -> Self:
        try:
            self._etcd.start()
            etcd_url = f"http://127.0.0.1:{self._etcd.port}"
            self._server = make_api_server(
                self._assets / "kube-apiserver", self._directory, self.authority, etcd_url, self.front_proxy
            )
            self._server.start()
            program = self._assets / CONTROLLERS
            if program.is_file():
                user = "system:kube-controller-manager"
                kubeconfig = self.kubeconfig(self._directory / "controllers.kubeconfig", user, user)
                self._controllers = make_controllers(
                    program, self._directory, self.authority, kubeconfig, self._flags
                )
                self._controllers.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all, the last started first."""
        for program in (self._controllers, self._server, self._etcd):
            with contextlib.suppress(subprocess.TimeoutExpired):
                if program is not None:
                    program.stop()

    def kill_api_server(self) -> None:
        """Let the API server crash; what it stored stays."""
        assert self._server is not None
        self._server.kill()

    def start_api_server(self) -> None:
        """Start the API server again at the same address."""
        assert self._server is not None
        port = self._server.port
        self._server.start()
        assert self._server.port == port, "its port was taken meanwhile, so its clients cannot find it"

    def kubeconfig(self, path: Path, user: str = "admin", group: str = "system:masters") -> Path:
        """Write a kubeconfig for a user with a client certificate, and return its path."""
        assert self._server is not None
        pair = self.authority.issue(common_name=user, organization=group)
        credentials = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return write_kubeconfig(
            path, f"https://127.0.0.1:{self._server.port}", self.authority.file, credentials
        )

    def token_kubeconfig(self, path: Path, token: str) -> Path:
        """Write a kubeconfig for the owner of a token, and return its path."""
        assert self._server is not None
        return write_kubeconfig(
            path, f"https://127.0.0.1:{self._server.port}", self.authority.file, {"token": token}
        )


def write_kubeconfig(path: Path, server: str, authority: Path, credentials: dict[str, str]) -> Path:
    """Write a kubeconfig, which names files, and return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "e2e",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "e2e", "user": credentials}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _is_well(port: int, path: str, trust: ssl.SSLContext) -> bool:
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=trust)
    ) as connection:
        connection.request("GET", path)
        with connection.getresponse() as response:
            response.read()
            return response.status == 200


def _find_etcd(assets: Path) -> Path | None:
    if (assets / "etcd").is_file():
        return assets / "etcd"
    installed = shutil.which("etcd")
    return Path(installed) if installed else None


def _write_signing_keys(directory: Path) -> tuple[Path, Path]:
    """Write the key pair for service account tokens (private, public) that kube-apiserver requires."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = directory / "service-account.key", directory / "service-account.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public
