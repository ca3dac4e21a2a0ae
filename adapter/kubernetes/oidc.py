"""The tokens of an OIDC issuer that a kubeconfig has, renewed as kubectl renews them.

A new token is stored in the kubeconfig, because an issuer may accept a refresh token once: kubectl, or this
program after a restart, could not renew the token again.

kubernetes-asyncio asks the issuer. Its own reader of kubeconfig files does so too, but without a certificate
authority it accepts any certificate of the issuer, and with one it fails.
"""

import asyncio
import base64
import contextlib
import math
import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import yaml

_MARGIN = 10.0
"""How long before its end a token is renewed, in seconds, as in client-go: it may live for a minute."""

_SECONDS = 30.0
"""The time within which an issuer has to answer."""


class _Renewed(msgspec.Struct, frozen=True):
    """What an issuer answers; without a refresh token the old one stays valid."""

    id_token: str
    refresh_token: str = ""


class _Claims(msgspec.Struct, frozen=True):
    """What is read of a token: its end, in seconds of the epoch."""

    exp: float = math.inf


async def renew(file: Path, user: str, provider: Mapping[str, str], now: float) -> str:
    """Return the token of a user whose auth provider has this configuration in a file; `now` is of the epoch.

    Raises ValueError if it has expired and cannot be renewed, OSError if the file cannot be written, and the
    exceptions of aiohttp and kubernetes-asyncio.
    """
    from kubernetes_asyncio.config.openid import OpenIDRequestor  # noqa: PLC0415 - only with a kubeconfig

    token = provider.get("id-token", "")
    if token and _expiry_of(token) - _MARGIN > now:
        return token
    for name in ("refresh-token", "idp-issuer-url", "client-id"):
        if not provider.get(name):
            raise ValueError(f"auth-provider: oidc: expected an id-token that is valid, or a {name}")
    client = provider["client-id"], provider.get("client-secret", "")
    issuer = OpenIDRequestor(
        *client, provider["idp-issuer-url"], ssl_ca_cert=_build_context(file.parent, provider)
    )
    with _locked(file) as real:  # before the issuer is asked: a token that is used up and not stored is lost
        async with asyncio.timeout(_SECONDS):
            answer = msgspec.convert(await issuer.refresh_token(provider["refresh-token"]), _Renewed)
        new = answer.refresh_token or provider["refresh-token"]
        _store(real, user, {"id-token": answer.id_token, "refresh-token": new})
    return answer.id_token


def _expiry_of(token: str) -> float:
    """Return when a token expires (epoch seconds), infinity if it does not say."""
    try:
        claims = base64.urlsafe_b64decode(token.split(".")[1] + "==")
        return msgspec.json.decode(claims, type=_Claims).exp
    except (IndexError, ValueError, msgspec.MsgspecError):
        return math.inf


def _build_context(folder: Path, provider: Mapping[str, str]) -> ssl.SSLContext:
    file, data = provider.get("idp-certificate-authority"), provider.get("idp-certificate-authority-data")
    authority = base64.b64decode(data).decode() if data else None
    context = ssl.create_default_context(cafile=folder / file if file else None, cadata=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as for the API server
    return context


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[Path]:
    """Keep kubectl from writing a file, and yield its real path. ValueError if another program writes it."""
    real = file.resolve()
    lock = real.with_name(f"{real.name}.lock")
    if lock.exists():
        raise ValueError(f"another program writes the file; if none does, remove {lock}")
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0))
    try:
        yield real
    finally:
        lock.unlink()


def _store(file: Path, user: str, tokens: Mapping[str, str]) -> None:
    """Write the tokens of a user into a file, which is replaced as a whole."""
    document = yaml.safe_load(file.read_bytes())
    for entry in document["users"]:
        if entry["name"] == user:
            entry["user"]["auth-provider"]["config"].update(tokens)
    descriptor, new = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        yaml.safe_dump(document, stream, sort_keys=False)
    shutil.copymode(file, new)
    Path(new).replace(file)
