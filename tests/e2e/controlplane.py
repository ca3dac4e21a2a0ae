"""A real control plane on loopback: etcd and kube-apiserver, as envtest lays them out, without controllers and nodes.

What lives here: two programs, their keys, and kubeconfig files for users of any name and group. What does not: the tests'
questions to it (`clusters`). Its law: all that it starts it ends, and nothing listens on anything but 127.0.0.1.

All methods block; what runs an event loop calls them with `asyncio.to_thread`.
"""

import contextlib
import http.client
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.tls import Authority

VARIABLE = "KUBEBUILDER_ASSETS"
"""Names the folder with etcd, kube-apiserver and kubectl; `setup-envtest use -p path` prints one."""

START_SECONDS = 60.0
STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_LOG_TAIL = 4000


class StartError(Exception):
    """A program did not become ready; carries the end of its log."""


def find_assets() -> Path | None:
    """Return the folder that the environment names, None where it names none."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


class Server:
    """One server program with a port of its own, kept over restarts unless someone else has taken it meanwhile.

    `command` gives the command line for a port, `is_ready` asks whether it serves there.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        command: Callable[[int], Sequence[str]],
        is_ready: Callable[[int], bool],
    ) -> None:
        self._name = name
        self._log = directory / f"{name}.log"
        self._command = command
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self) -> None:
        """Start it and wait until it is ready. Raises StartError."""
        assert self._process is None, f"{self._name} runs"
        for attempt in range(5):
            if attempt or not self.port:
                self.port = _free_port()
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    list(self._command(self.port)), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
            if self._wait_ready():
                return
            self.kill()
            if "address already in use" not in self.log():
                break
        raise StartError(f"{self._name} did not become ready; its log ends:\n{self.log()[-_LOG_TAIL:]}")

    def stop(self) -> None:
        """End it in order; nothing happens when it does not run."""
        self._end(subprocess.Popen.terminate)

    def kill(self) -> None:
        """End it at once, as a crash does; nothing happens when it does not run."""
        self._end(subprocess.Popen.kill)

    def log(self) -> str:
        """Return what it has printed since its last start."""
        return self._log.read_text(errors="replace")

    def _wait_ready(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS  # noqa: TID251  # waits for a real program
        while self._process.poll() is None and time.monotonic() < deadline:  # noqa: TID251  # see above
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._is_ready(self.port):
                    return True
            time.sleep(_POLL_SECONDS)
        return False

    def _end(self, signal: Callable[[subprocess.Popen[bytes]], None]) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        signal(process)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_etcd(program: Path, directory: Path) -> Server:
    """Return an etcd that keeps its data in `directory`."""

    def command(port: int) -> list[str]:
        url = f"http://127.0.0.1:{port}"
        return [
            str(program),
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:0",  # a cluster of one: nobody asks there
        ]

    def is_ready(port: int) -> bool:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/health")
            with connection.getresponse() as response:
                return response.status == 200 and b'"true"' in response.read()

    return Server("etcd", directory, command, is_ready)


def make_api_server(program: Path, directory: Path, authority: Authority, etcd_url: str) -> Server:
    """Return a kube-apiserver on an etcd: RBAC, client certificates of `authority`, no service accounts."""
    serving = authority.issue("127.0.0.1", "localhost", "kubernetes.default.svc")
    signing, verifying = _write_signing_keys(directory)
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
            "--advertise-address=127.0.0.1",  # else it looks for a default route, which a sandbox may not have
            f"--secure-port={port}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://127.0.0.1",
            f"--service-account-key-file={verifying}",
            f"--service-account-signing-key-file={signing}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",  # no controller makes the accounts that pods would need
        ]

    def is_ready(port: int) -> bool:
        with contextlib.closing(
            http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=client)
        ) as connection:
            connection.request("GET", "/readyz")
            with connection.getresponse() as response:
                response.read()
                return response.status == 200

    return Server("kube-apiserver", directory, command, is_ready)


class ControlPlane:
    """Etcd and an API server; a context manager that starts both and ends both."""

    def __init__(self, assets: Path, directory: Path, authority: Authority) -> None:
        missing = [name for name in ("etcd", "kube-apiserver") if not (assets / name).is_file()]
        if missing:
            raise StartError(f"{VARIABLE} names {assets}, which lacks {' and '.join(missing)}")
        own_kubectl = assets / "kubectl"
        self.kubectl = str(own_kubectl) if own_kubectl.is_file() else ""
        """Path of the kubectl that came with it, "" where none did."""
        self._assets = assets
        self._directory = directory
        self._authority = authority
        self._etcd = make_etcd(assets / "etcd", directory)
        self._server: Server | None = None

    def __enter__(self) -> Self:
        try:
            self._etcd.start()
            etcd_url = f"http://127.0.0.1:{self._etcd.port}"
            self._server = make_api_server(self._assets / "kube-apiserver", self._directory, self._authority, etcd_url)
            self._server.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End both, the API server first."""
        if self._server is not None:
            self._server.stop()
        self._etcd.stop()

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
        """Write a kubeconfig for a user with a client certificate, and return its path.

        It names files: what is embedded kubernetes-asyncio copies to temporary files that it does not close.
        """
        assert self._server is not None
        pair = self._authority.issue(common_name=user, organization=group)
        cluster = {
            "server": f"https://127.0.0.1:{self._server.port}",
            "certificate-authority": str(self._authority.file),
        }
        credentials = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path


def _write_signing_keys(directory: Path) -> tuple[Path, Path]:
    """Write the key pair for service account tokens, which kube-apiserver insists on; return private and public file."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = directory / "service-account.key", directory / "service-account.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
