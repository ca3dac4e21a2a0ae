"""What a running scaler shows of one autoscaler, read from the process that decides about it.

With --server it reads from that address. Without it, it reads the Lease of the slice, and forwards the port
of the Pod that holds it with `kubectl port-forward`.
"""

import asyncio
import contextlib
import math
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
from aiohttp import http_exceptions

from adapter import net
from adapter.errors import Fault, InputError, RunError
from adapter.kubernetes import credentials
from adapter.kubernetes.ownership.lease import KubernetesLeases
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.view import FleetView
from fastpath_tools.live import cluster_options, reading
from fastpath_tools.live.cluster_options import (
    PORT,
    KubeconfigOptions,
    ScalerAddressOptions,
    ScalerServiceOptions,
)
from fastpath_tools.live.facts import Leader, Leaders, Unread

_AUTOSCALERS = "/debug/fastpath/autoscalers"
SECONDS = 10.0
REFORWARD = 10.0
"""How many seconds after it failed a port is forwarded again."""

_MOST_BYTES = 16 << 20
"""How many bytes of a response are read."""

_OTHERS = 8
"""How many processes are asked whose Leases are not trusted."""

_READY = b"Forwarding from 127.0.0.1:"
_CA_ADVICE = (
    "; --ca-file gives the certificates to trust, such as apiserver.crt in the --cert-dir of the scaler"
)
_NAME_ADVICE = "; --tls-server-name gives the name to check, such as fastpath.fastpath.svc"

_T = TypeVar("_T")


async def fetch(options: ScalerServiceOptions, fastpath: str) -> dict[str, Any]:
    """Return what its scaler shows of the autoscaler; `fastpath` is the namespace of the Lease.

    RunError if that cannot be read.
    """
    path = f"{_AUTOSCALERS}/{'/'.join(options.key)}"
    if options.server:
        return await _fetch(options, options.server.rstrip("/") + path, dict[str, Any])
    options = await asyncio.to_thread(cluster_options.with_context, options)
    pod = await _find_leader(options, fastpath)
    async with _forwarded(options, fastpath, pod, options.port) as address:
        return await _fetch(options, address + path, dict[str, Any])


class LeaderReader:
    """Reads what the processes that lead show of autoscalers, through a forwarded port of each.

    A port is forwarded until the `stack` is closed, and again some time after it failed. With the address of
    a `server` it reads from that alone.
    """

    def __init__(
        self,
        options: KubeconfigOptions,
        stack: contextlib.AsyncExitStack,
        server: ScalerAddressOptions | None = None,
    ) -> None:
        self._options = options
        self._server = server if server is not None and server.server else None
        self._stack = stack
        self._ports: dict[tuple[str, str], _Port] = {}

    async def read(self, leaders: Leaders | Unread, namespace: str, name: str) -> dict[str, Any] | Unread:
        """Return what is shown of one autoscaler, without its journal."""
        path = f"/{namespace}/{name}?journal=false"
        if self._server is not None:
            return await self._read_server(self._server, path, dict[str, Any])
        if isinstance(leaders, Unread):
            return leaders
        own = [one for one in leaders.found if one.holder and one.owns(namespace)]
        if not own:
            return Unread("no scaler leads")
        last = [(not one.is_trusted, math.inf if one.renewed is None else one.renewed, one) for one in own]
        leader = min(last)[-1]
        return await self._read(*_pod(leader), path, dict[str, Any])

    async def read_all(self, leaders: Leaders | Unread) -> list[FleetView | Unread]:
        """Return what each of the processes shows of all its autoscalers.

        One whose Lease is not trusted shows those of its namespace, and of these processes few are asked.
        """
        if self._server is not None:
            return [await self._read_server(self._server, "", FleetView)]
        if isinstance(leaders, Unread):
            return [leaders]
        held = [leader for leader in leaders.found if leader.holder]
        pods = {_pod(leader): leader.is_trusted for leader in held}
        others = [pod for pod, is_trusted in pods.items() if not is_trusted]
        for pod in others[_OTHERS:]:
            del pods[pod]
        views = await asyncio.gather(*(self._read(*pod, "", FleetView) for pod in pods))
        shown = [
            view if is_trusted or isinstance(view, Unread) else _within(namespace, view)
            for (namespace, _), is_trusted, view in zip(pods, pods.values(), views, strict=True)
        ]
        left = len(others) - _OTHERS
        return shown if left <= 0 else [*shown, Unread(f"{left} more processes hold Leases like a scaler's")]

    async def _read_server(self, options: ScalerAddressOptions, path: str, form: type[_T]) -> _T | Unread:
        url = f"{options.server.rstrip('/')}{_AUTOSCALERS}{path}"
        try:
            return await _fetch(options, url, form)
        except RunError as error:
            return Unread(str(error))

    async def _read(self, fastpath: str, pod: str, path: str, form: type[_T]) -> _T | Unread:
        port = self._ports.get((fastpath, pod))
        if port is None or port.is_over:
            port = self._ports[fastpath, pod] = _Port(self._options, fastpath, pod, self._stack)
        try:
            return await _fetch(None, f"{await port.address()}{_AUTOSCALERS}{path}", form)
        except RefusalError as error:  # the port works
            return Unread(str(error))
        except RunError as error:
            await port.close()
            return Unread(str(error))


class _Port:
    """A port of a Pod, forwarded when its address is first needed, until the `outer` stack is closed."""

    def __init__(
        self, options: KubeconfigOptions, namespace: str, pod: str, outer: contextlib.AsyncExitStack
    ) -> None:
        self._forwarding = options, namespace, pod, PORT
        self._outer = outer
        self._stack = contextlib.AsyncExitStack()
        self._closed = math.inf

    @reading.once
    async def address(self) -> str:
        """Return the address here. RunError if the port cannot be forwarded."""
        self._outer.push_async_callback(self._stack.aclose)
        return await self._stack.enter_async_context(_forwarded(*self._forwarding))

    async def close(self) -> None:
        self._closed = min(self._closed, asyncio.get_running_loop().time())
        await self._stack.aclose()

    @property
    def is_over(self) -> bool:
        """Tell whether it was closed long enough ago to be forwarded again."""
        return asyncio.get_running_loop().time() >= self._closed + REFORWARD


def _within(namespace: str, view: FleetView) -> FleetView:
    """Return the autoscalers of a namespace that a process shows."""
    own = tuple(entry for entry in view.autoscalers if entry.namespace == namespace)
    return msgspec.structs.replace(view, autoscalers=own)


def _pod(leader: Leader) -> tuple[str, str]:
    """Return namespace and name of the Pod of a leader."""
    return leader.namespace, credentials.pod_of(leader.holder)


class RefusalError(RunError):
    """A response without the document."""


async def _fetch(options: ScalerAddressOptions | None, url: str, form: type[_T]) -> _T:
    """Return the document at an address; without options the local end of a forwarded port. RunError."""
    headers = {}
    if options is not None and options.token_file:
        headers["Authorization"] = f"Bearer {await asyncio.to_thread(_read_token, options.token_file)}"
    context = True if options is None else await asyncio.to_thread(_trust, options.ca_file)
    tls_server_name = None if options is None else options.tls_server_name or None
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(url, ssl=context, server_hostname=tls_server_name, allow_redirects=False) as response,
        ):
            body = bytearray()
            async for part in response.content.iter_chunked(1 << 16):
                body += part
                if len(body) > _MOST_BYTES:
                    raise RunError(f"{url}: its response has more than {_MOST_BYTES >> 20} MiB")
    except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
        advice = _NAME_ADVICE if is_wrong_name(error) else ""
        if isinstance(error, aiohttp.ClientConnectorCertificateError) and not advice:
            advice = _CA_ADVICE
        raise RunError(f"{url}: {net.describe_error(error)}{advice}") from error
    try:
        if response.status == 200:
            return msgspec.json.decode(body, type=form)
        refusal = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise RefusalError(f"{url}: {response.status}: not a response of a Fastpath scaler") from error
    raise RefusalError(f"{url}: {refusal.get('message') or response.reason or ''}")


def is_wrong_name(error: BaseException) -> bool:
    """Tell whether a certificate was refused only because it is for another name."""
    cause = getattr(error, "certificate_error", error)
    return isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_message.startswith(
        ("Hostname mismatch", "IP address mismatch")
    )


def _read_token(file: str) -> str:
    """Return the bearer token in a file. InputError if it has none that a header can carry."""
    try:
        token = Path(file).read_text("utf-8").strip()
    except UnicodeDecodeError as error:
        raise _unusable("--token-file", file, "a readable file: it is not UTF-8 text") from error
    except OSError as error:
        raise _unusable("--token-file", file, f"a readable file: {error.strerror}") from error
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise _unusable("--token-file", file, "a file with one bearer token")
    return token


def _trust(file: str) -> ssl.SSLContext:
    """Return the context that trusts the authorities in a file, without one those of the system."""
    try:
        return ssl.create_default_context(cafile=file or None)
    except ssl.SSLError as error:
        raise _unusable("--ca-file", file, "a file with certificates in PEM form") from error
    except OSError as error:
        raise _unusable("--ca-file", file, f"a readable file: {error.strerror}") from error


def _unusable(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(flag, value, f"expected {expected}")])


async def _find_leader(options: ScalerServiceOptions, namespace: str) -> str:
    name = slices.name_of(options.lease_name, slices.slice_of(options.key[0]))
    async with cluster_options.connect(options) as client:
        lease = await KubernetesLeases(client, namespace, name).fetch(SECONDS)
    if lease is None:
        where = "--namespace gives the namespace that the scaler runs in"
        raise RunError(f"no scaler owns the slice: there is no Lease {namespace}/{name}; {where}")
    if not lease.record.holder:
        raise RunError(f"no scaler owns the slice: the Lease {namespace}/{name} has no holder")
    return credentials.pod_of(lease.record.holder)


@contextlib.asynccontextmanager
async def _forwarded(options: KubeconfigOptions, namespace: str, pod: str, port: int) -> AsyncIterator[str]:
    """Forward a port of a Pod for as long as the block is open; gives the address here."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise RunError(f"kubectl is not installed: forward port {port} of Pod {pod} and give --server")
    failure = f"port {port} of Pod {pod} cannot be forwarded"
    connection = {"kubeconfig": options.kubeconfig, "context": options.context, "as": options.impersonate}
    flags = [f"--{name}={value}" for name, value in connection.items() if value]
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *flags,
        "port-forward",
        f"--namespace={namespace}",
        f"pod/{pod}",
        f":{port}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(SECONDS):
            line = await process.stdout.readline()
            answer = (line or await process.stderr.read()).decode(errors="replace").strip()
        if not line.startswith(_READY):
            raise RunError(f"{failure}: {answer or 'kubectl has ended'}")
        yield f"http://127.0.0.1:{int(line[len(_READY) :].split()[0])}"
    except TimeoutError as error:
        raise RunError(f"{failure}: no answer in time") from error
    finally:
        if process.returncode is None:
            process.kill()  # it has nothing to tidy up, and may not heed a request
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):  # a child of it may keep its pipes open
                await process.wait()
