"""Reads kubeconfig files as kubectl does: contexts, certificates, tokens, exec plugins.

A reader of our own, because kubernetes-asyncio loads the models of all Kubernetes objects with its own
(docs/decisions/pod-credentials.md). It reads one file, and never writes to it.
"""

import asyncio
import atexit
import base64
import datetime as dt
import functools
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from adapter.model.clock import Clock

UNUSABLE: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    RecursionError,
    yaml.YAMLError,
    msgspec.ValidationError,
)
"""Exceptions for a kubeconfig, or a file or plugin it names, that cannot be used."""

_EXPIRY_MARGIN = 300.0
"""How long before its end an exec plugin's credential is renewed, in seconds."""


class _Cluster(msgspec.Struct, rename="kebab", frozen=True):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class _Plugin(msgspec.Struct, rename="camel", frozen=True):
    command: str
    api_version: str
    args: Sequence[str] = ()
    env: Sequence[_Variable] = ()


class _AuthProvider(msgspec.Struct, frozen=True):
    name: str = ""
    config: Mapping[str, object] = {}


class _User(msgspec.Struct, rename="kebab", frozen=True):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Plugin | None = None
    auth_provider: _AuthProvider | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _File(msgspec.Struct, rename="kebab", frozen=True):
    clusters: Sequence[_NamedCluster] = ()
    contexts: Sequence[_NamedContext] = ()
    users: Sequence[_NamedUser] = ()
    current_context: str = ""


class _Credential(msgspec.Struct, rename="camel", frozen=True):
    """What an exec plugin answers, in the field `status`."""

    token: str = ""
    expiration_timestamp: dt.datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, rename="camel", frozen=True):
    api_version: str
    status: _Credential


_T = TypeVar("_T", _NamedCluster, _NamedContext, _NamedUser)


class Kubeconfig:
    """A context of a file: its cluster and its user. Raises any of `UNUSABLE`, as all of its methods do."""

    def __init__(self, file: Path, context: str | None, clock: Clock) -> None:
        self._folder = file.parent
        self._clock = clock
        document = msgspec.convert(_drop_nulls(yaml.safe_load(file.read_bytes())), _File)
        name = document.current_context if context is None else context
        chosen = _find(document.contexts, "contexts", name).context
        self._cluster = _find(document.clusters, "clusters", chosen.cluster).cluster
        self._user = _find(document.users, "users", chosen.user).user if chosen.user else _User()
        self._credential: _Credential | None = None
        self.host = self._cluster.server.rstrip("/")
        self.verify = not self._cluster.insecure_skip_tls_verify
        self.tls_server_name = self._cluster.tls_server_name
        self.proxy = self._cluster.proxy_url
        self.namespace = chosen.namespace

    async def authorize(self) -> str:
        """Return the value of the Authorization header, renewed if it is due, "" for none."""
        user, token = self._user, ""
        if user.token_file:
            token = (self._folder / user.token_file).read_text(encoding="utf-8")
        elif user.token:
            token = user.token
        elif user.username:
            return "Basic " + base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        elif user.exec is not None:
            token = (await self._execute(user.exec)).token
        elif user.auth_provider is not None:
            token = _token_of_provider(user.auth_provider)
        # token files usually end with a newline, which a header must not contain
        return f"Bearer {token.strip()}" if token else ""

    def find_certificates(self) -> tuple[str, str, str]:
        """Return the files of authority, certificate and key, "" for none; after `authorize`.

        Inline content is written to a file, which only its owner can read, and which is removed at exit.
        """
        cluster, user, answer = self._cluster, self._user, self._credential or _Credential()
        if not self.host.startswith("https://"):
            return "", "", ""
        if answer.client_certificate_data:
            certificate, key = map(_write_file, (answer.client_certificate_data, answer.client_key_data))
        else:
            certificate = self._find_file(user.client_certificate, user.client_certificate_data)
            key = self._find_file(user.client_key, user.client_key_data)
        authority = self._find_file(cluster.certificate_authority, cluster.certificate_authority_data)
        return authority, certificate, key

    def _find_file(self, name: str, encoded: str) -> str:
        if encoded:
            return _write_file(base64.b64decode(encoded).decode())
        return str(self._folder / name) if name else ""

    async def _execute(self, plugin: _Plugin) -> _Credential:
        """Return the credential of a plugin, which is run again if the last may have expired."""
        known = self._credential
        if known is not None and known.expiration_timestamp is not None:
            left = known.expiration_timestamp.timestamp() - self._clock.wall()
            if left >= _EXPIRY_MARGIN:
                return known
        self._credential = await _run(plugin, self._folder)
        return self._credential


def _find(entries: Sequence[_T], kind: str, name: str) -> _T:
    named = [entry for entry in entries if entry.name == name]
    if len(named) != 1:
        raise ValueError(f"{kind}: expected one with the name {name!r}, found {len(named)}")
    return named[0]


def _drop_nulls(value: object) -> object:
    """Return YAML or JSON without keys that are null, which to kubectl are absent. EKS writes `env: null`."""
    if isinstance(value, dict):
        return {key: _drop_nulls(part) for key, part in value.items() if part is not None}
    return [_drop_nulls(part) for part in value] if isinstance(value, list) else value


def _token_of_provider(provider: _AuthProvider) -> str:
    """Return the token that kubectl has stored; ValueError without one.

    Only kubectl renews it: an issuer may accept a refresh token once, and the new one belongs in the file.
    """
    token = provider.config.get("id-token")
    if provider.name != "oidc" or not isinstance(token, str):
        raise ValueError(
            f"auth-provider: {provider.name}: expected oidc with an id-token, or an exec plugin in its place"
        )
    return token


async def _run(plugin: _Plugin, folder: Path) -> _Credential:
    """Run an exec plugin and return its answer. It shares our standard input, so it may prompt."""
    name = plugin.command
    command = str(folder / name) if "/" in name else name  # as kubectl: relative to the file
    request = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": os.isatty(0)},
    }
    variables = {variable.name: variable.value for variable in plugin.env}
    process = await asyncio.create_subprocess_exec(
        command,
        *plugin.args,
        env=os.environ | variables | {"KUBERNETES_EXEC_INFO": json.dumps(request)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        message = errors.decode(errors="replace").strip()
        raise ValueError(f"exec: {name}: exit status {process.returncode}: {message}")
    try:
        answer = msgspec.convert(_drop_nulls(msgspec.json.decode(output)), _ExecCredential)
    except msgspec.DecodeError as error:
        raise ValueError(f"exec: {name}: expected an ExecCredential: {error}") from error
    if answer.api_version != plugin.api_version:
        raise ValueError(f"exec: {name}: expected {plugin.api_version}, not {answer.api_version}")
    if not answer.status.token and not (
        answer.status.client_certificate_data and answer.status.client_key_data
    ):
        raise ValueError(f"exec: {name}: expected a token, or a certificate with its key")
    return answer.status


@functools.cache
def _write_file(content: str) -> str:
    """Return the name of a temporary file with `content`, the same for equal contents."""
    descriptor, name = tempfile.mkstemp()
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
    return name
