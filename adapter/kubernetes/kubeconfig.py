"""Reads kubeconfig files with kubernetes-asyncio, and the tokens and certificates that they name.

The library imports the models of all Kubernetes objects, which take 39 MiB. So it is imported when a file is
read, and a pod of the cluster reads none. Where the library does not do what kubectl does, it is given what
kubectl would use (docs/decisions/pod-credentials.md): of several files the first that has a name counts, a
null is absent, the names of files are relative to the file that has them, and a token file counts before a
token.
"""

import atexit
import base64
import contextlib
import datetime as dt
import functools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import aiohttp
import msgspec
import yaml

from adapter import net
from adapter.kubernetes import oidc
from adapter.model.clock import Clock

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

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


class _Cluster(msgspec.Struct, rename="kebab", frozen=True, omit_defaults=True):
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
    config: Mapping[str, str] = {}


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


_T = TypeVar("_T", _NamedCluster, _NamedContext, _NamedUser)


def read_current_context(files: Iterable[Path]) -> str:
    """Return the name of the current context, "" if no file has one. Raises any of `UNUSABLE`."""
    return next(filter(None, (_read(file).current_context for file in files)), "")


class Kubeconfig:
    """A context of some files: its cluster and its user. Raises any of `UNUSABLE`, as all of its methods do.

    After `authorize`, `configuration` is what the library has read.
    """

    configuration: "Configuration"

    def __init__(self, files: Sequence[Path], context: str, clock: Clock) -> None:
        self._clock = clock
        read = [(file, _read(file)) for file in files]
        _, chosen = _find([(file, content.contexts) for file, content in read], "contexts", context)
        self.namespace = chosen.context.namespace
        clusters = [(file, content.clusters) for file, content in read]
        file, entry = _find(clusters, "clusters", chosen.context.cluster)
        authority = entry.cluster.certificate_authority, entry.cluster.certificate_authority_data
        self._cluster: dict[str, object] = msgspec.to_builtins(entry.cluster)
        self._cluster.pop("certificate-authority-data", None)
        self._cluster |= {"certificate-authority": _name_file(file, *authority)} if any(authority) else {}
        self._file, self._user = file, _NamedUser("")
        if chosen.context.user:
            users = [(file, content.users) for file, content in read]
            self._file, self._user = _find(users, "users", chosen.context.user)
        self._credential: _Credential | None = None

    @property
    def certificate(self) -> tuple[str, str]:
        """The files of the client's certificate and its key, "" for none."""
        return self.configuration.cert_file or "", self.configuration.key_file or ""

    async def authorize(self) -> str:
        """Return the value of the Authorization header, renewed if it is due, "" for none."""
        from kubernetes_asyncio import client, config  # noqa: PLC0415 - only where a kubeconfig is given

        document = {
            "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
            "clusters": [{"name": "cluster", "cluster": self._cluster}],
            "users": [{"name": "user", "user": await self._prepare_user()}],
        }
        configuration = client.Configuration()
        with _explained("credentials"):
            await config.load_kube_config_from_dict(document, "context", configuration)
        self.configuration = configuration
        return str(configuration.api_key.get("BearerToken", ""))

    async def _prepare_user(self) -> dict[str, str]:
        """Return what the library is to read of the user: a token or a password, and certificates."""
        user = self._user.user
        certificate = _name_file(self._file, user.client_certificate, user.client_certificate_data)
        key = _name_file(self._file, user.client_key, user.client_key_data)
        credential: dict[str, str] = {}
        if user.token_file:
            # files and programs end a token with a newline, which a header must not contain
            credential = {"token": (self._file.parent / user.token_file).read_text(encoding="utf-8").strip()}
        elif user.token:
            credential = {"token": user.token.strip()}
        elif user.username:
            credential = {"username": user.username, "password": user.password}
        elif user.exec is not None:
            answer = await self._run(user.exec)
            credential = {"token": answer.token.strip()}
            if answer.client_certificate_data:
                certificate, key = map(_write_file, (answer.client_certificate_data, answer.client_key_data))
        elif user.auth_provider is not None:
            credential = {"token": await self._ask_issuer()}
        files = {"client-certificate": certificate, "client-key": key}
        return credential | {name: file for name, file in files.items() if file}

    async def _run(self, plugin: _Plugin) -> _Credential:
        """Return the credential of an exec plugin, which is run again if the last may have expired."""
        from kubernetes_asyncio.config.exec_provider import ExecProvider  # noqa: PLC0415 - as above
        from kubernetes_asyncio.config.kube_config import ConfigNode  # noqa: PLC0415 - as above

        known = self._credential
        if known is not None and known.expiration_timestamp is not None:
            left = known.expiration_timestamp.timestamp() - self._clock.wall()
            if left >= _EXPIRY_MARGIN:
                return known
        written = msgspec.to_builtins(plugin)
        if "/" in plugin.command:  # as kubectl: relative to the file
            written["command"] = str(self._file.parent / plugin.command)
        with _explained(f"exec: {plugin.command}"):
            status = await ExecProvider(ConfigNode("exec", written)).run()
        answer = msgspec.convert(_drop_nulls(status), _Credential)
        if not answer.token and not (answer.client_certificate_data and answer.client_key_data):
            raise ValueError(f"exec: {plugin.command}: expected a token, or a certificate with its key")
        self._credential = answer
        return answer

    async def _ask_issuer(self) -> str:
        """Return the token of an OIDC issuer. The file is read each time, because kubectl renews it too."""
        _, entry = _find([(self._file, _read(self._file).users)], "users", self._user.name)
        provider = entry.user.auth_provider or _AuthProvider()
        if provider.name != "oidc":
            raise ValueError(f"auth-provider: {provider.name}: expected oidc, or an exec plugin")
        with _explained("auth-provider: oidc"):
            return await oidc.renew(
                self._file.resolve(), self._user.name, provider.config, self._clock.wall()
            )


def _read(file: Path) -> _File:
    return msgspec.convert(_drop_nulls(yaml.safe_load(file.read_bytes())), _File)


def _find(lists: Iterable[tuple[Path, Sequence[_T]]], kind: str, name: str) -> tuple[Path, _T]:
    """Return the entry of the first file that has one of the name, and that file."""
    for file, entries in lists:
        named = [entry for entry in entries if entry.name == name]
        if len(named) > 1:
            raise ValueError(f"{kind}: expected one with the name {name!r}, found {len(named)}")
        if named:
            return file, named[0]
    raise ValueError(f"{kind}: expected one with the name {name!r}, found 0")


def _name_file(file: Path, name: str, encoded: str) -> str:
    """Return the name of a file, which a kubeconfig names or has the content of, "" for none."""
    if encoded:
        return _write_file(base64.b64decode(encoded).decode())
    return str(file.parent / name) if name else ""


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise ValueError in place of the exceptions of the library."""
    from kubernetes_asyncio.config import ConfigException  # noqa: PLC0415 - as above

    try:
        yield
    except (ConfigException, aiohttp.ClientError) as error:
        raise ValueError(
            f"{what}: {net.describe_error(error).removeprefix('exec: ').removeprefix('oidc: ')}"
        ) from error


def _drop_nulls(value: object) -> object:
    """Return YAML or JSON without keys that are null, which to kubectl are absent. EKS writes `env: null`."""
    if isinstance(value, dict):
        return {key: _drop_nulls(part) for key, part in value.items() if part is not None}
    return [_drop_nulls(part) for part in value] if isinstance(value, list) else value


@functools.cache
def _write_file(content: str) -> str:
    """Return the name of a temporary file with `content`, the same for equal contents."""
    descriptor, name = tempfile.mkstemp()
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
    return name
