"""Reads kubeconfig files with kubernetes-asyncio, which knows their users: tokens, exec plugins, OIDC."""

import atexit
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, kube_config

from adapter.kubernetes.credentials import ClientConfiguration

UNUSABLE: tuple[type[Exception], ...] = (
    ConfigException,
    OSError,
    yaml.YAMLError,
    aiohttp.ClientError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ImportError,
    RuntimeError,
)
"""Exceptions of the library for an unusable kubeconfig: its own, and any that its code happens to raise on
odd input.
"""


async def load(
    file: Path, context: str | None
) -> tuple[ClientConfiguration, str, Callable[[], Awaitable[str]]]:
    """Return the configuration, the Authorization header, and a function that renews and returns the header.

    Raises any of `UNUSABLE`, and so does the function.
    """
    loaded = Configuration()
    # do not write renewed tokens to the file: it may be a mounted Secret, and it belongs to its owner
    loader = await kube_config.load_kube_config(
        str(file), context=context, client_configuration=loaded, persist_config=False
    )

    async def renew() -> str:
        await loader.load_and_set(loaded)
        return _auth_header(loaded)

    config = ClientConfiguration(
        loaded.host or "",
        loaded.ssl_ca_cert or "",
        loaded.cert_file or "",
        loaded.key_file or "",
        bool(loaded.verify_ssl),
        loaded.tls_server_name or "",
        loaded.proxy or "",
    )
    return config, _auth_header(loaded), renew


def _auth_header(loaded: Configuration) -> str:
    # token files usually end with a newline, which a header must not contain
    return str(loaded.api_key.get("BearerToken") or "").strip()


def _write_temporary_file(holder: kube_config.FileOrData, content: str | bytes) -> str:
    """Return the name of a file with `content`, the same for equal contents; it is removed at exit.

    Replaces a method of kubernetes-asyncio (36.1) that never closes the descriptor of `mkstemp`. It leaks one
    descriptor for each inline `*-data` field, and another whenever an exec plugin returns a new certificate.
    """
    written = kube_config._temp_files  # noqa: SLF001
    name = written.get(str(content))
    if name is None:
        if not written:
            atexit.register(kube_config._cleanup_temp_files)  # noqa: SLF001
        descriptor, name = tempfile.mkstemp(dir=holder._temp_file_path)  # noqa: SLF001
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        written[str(content)] = name
    return name


_holder: Any = kube_config.FileOrData
_holder._create_temp_file_with_content = _write_temporary_file  # noqa: SLF001
