"""`fastpath explain NS/NAME`: the journal of one autoscaler, from the process that decides about it.

Who leads stands in the Lease. With `--server` that address is asked; without, the API server is asked for the Lease, and the port of
the Pod that it names is forwarded, as `kubectl port-forward` does.
"""

import argparse
import asyncio
import contextlib
import random
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import http_exceptions

from adapter.cli.deploy import preflight
from adapter.cli.version import version
from adapter.compose import app
from adapter.errors import Fault, InputError, RunError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.leader import verdict
from adapter.kubernetes.leader.lease import KubernetesLeases
from adapter.model import shards
from adapter.net import connect_errors
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_SECONDS = 10.0
_SHOWN = 10
_PORT, _LAST_PORT = 10254, 65535
_READY = b"Forwarding from 127.0.0.1:"
_NAME_ADVICE = "; --tls-server-name gives the name to check, such as fastpath.fastpath.svc"


def main(arguments: Sequence[str]) -> int:
    """Print what was decided and why; 1 where it cannot be had, 2 for a wrong command line."""
    options = parse(arguments)
    namespace, name = _check(options)
    document = asyncio.run(fetch(options, namespace, name))
    if options.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    else:
        print("\n".join(render(document)))
    return 0


def _check(options: argparse.Namespace) -> tuple[str, str]:
    """Return namespace and name of the autoscaler. InputError with all that is wrong in the command line."""
    faults = []
    namespace, slash, name = options.autoscaler.partition("/")
    if not slash or not namespace or not name or "/" in name:
        faults.append(Fault("NS/NAME", options.autoscaler, "expected namespace and name, such as shop/web"))
    if options.server and not _is_url(options.server):
        faults.append(Fault("--server", options.server, f"expected a URL such as http://127.0.0.1:{_PORT}"))
    if not 1 <= options.port <= _LAST_PORT:
        faults.append(Fault("--port", str(options.port), f"expected a port from 1 to {_LAST_PORT}"))
    if faults:
        raise InputError(faults)
    return namespace, name


def _is_url(text: str) -> bool:
    """Tell whether a text is an http or https URL that a path can be added to."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return good and not parts.query and not parts.fragment and text.isprintable() and " " not in text


def build_parser() -> argparse.ArgumentParser:
    """Return what reads a command line."""
    parser = argparse.ArgumentParser(
        prog="fastpath explain",
        description="Say what the scaler decided for one autoscaler and why.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("autoscaler", metavar="NS/NAME", help="the autoscaler")
    parser.add_argument(
        "--server", default="", help="address of the process that leads; without it the Lease names its Pod"
    )
    parser.add_argument("--token-file", default="", help="file with a bearer token for --server")
    parser.add_argument("--ca-file", default="", help="authorities of the certificate of --server")
    parser.add_argument(
        "--tls-server-name",
        default="",
        help="name that the certificate of --server is checked for, such as fastpath.fastpath.svc; "
        "without it the host of --server",
    )
    parser.add_argument(
        "--kubeconfig",
        default="",
        help="kubeconfig; without it $KUBECONFIG, then ~/.kube/config, then the pod's service account",
    )
    parser.add_argument(
        "--lease-namespace", default="fastpath", help="namespace of the Lease, and of the Pod"
    )
    parser.add_argument("--lease-name", default="fastpath-scaler", help="name of the Lease")
    parser.add_argument(
        "--shard", default="1/1", help="as the scaler has it: its Lease is another for each shard"
    )
    parser.add_argument(
        "--port", type=int, default=_PORT, help="local port of the Pod where it shows its journal"
    )
    parser.add_argument("--json", action="store_true", help="print the whole document")
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what a command line says."""
    return build_parser().parse_args(arguments)


async def fetch(options: argparse.Namespace, namespace: str, name: str) -> dict[str, Any]:
    """Return what the process that leads shows of an autoscaler. RunError where it cannot be had."""
    path = f"/debug/fastpath/autoscalers/{namespace}/{name}"
    if options.server:
        return await _get(options, options.server.rstrip("/") + path)
    pod = await _find_leader(options)
    async with _forwarded(options, pod) as address:
        return await _get(options, address + path)


async def _get(options: argparse.Namespace, url: str) -> dict[str, Any]:
    headers = {}
    if options.token_file:
        headers["Authorization"] = f"Bearer {await asyncio.to_thread(_read_token, options.token_file)}"
    context = await asyncio.to_thread(_trust, options.ca_file)
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(
                url, ssl=context, server_hostname=options.tls_server_name or None, allow_redirects=False
            ) as response,
        ):
            body = await response.read()
    except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
        advice = _NAME_ADVICE if connect_errors.is_wrong_name(error) else ""
        raise RunError(f"{url}: {connect_errors.describe(error)}{advice}") from error
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise RunError(f"{url}: {response.status}: not the answer of a scaler") from error
    if response.status != 200:
        raise RunError(f"{url}: {document.get('message') or response.reason}")
    return document


def _read_token(file: str) -> str:
    """Return the bearer token in a file. InputError where there is none that a header can carry."""
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable("--token-file", file, f"a readable file: {_reason(error)}") from error
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
        raise _unusable("--ca-file", file, f"a readable file: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or "it is not UTF-8 text"


def _unusable(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(flag, value, f"expected {expected}")])


async def _find_leader(options: argparse.Namespace) -> str:
    """Return the name of the Pod that holds the Lease."""
    clock = app.SystemClock()
    faults = ProblemLog(Monitoring(version()), clock)
    kubeconfig = preflight.find_kubeconfig(options.kubeconfig)
    configuration = await credentials.load_configuration(kubeconfig, clock, faults, flag="--kubeconfig")
    try:
        name = shards.parse_shard(options.shard).lease_name(options.lease_name)
    except ValueError as error:
        raise InputError([Fault("--shard", options.shard, f"expected {error}")]) from None
    async with await kubernetes.connect(configuration, random=random.random, flag="--kubeconfig") as client:
        lease = await KubernetesLeases(client, options.lease_namespace, name).fetch(_SECONDS)
    if lease is None or not lease.record.holder:
        raise RunError(f"nobody leads: the Lease {options.lease_namespace}/{name} has no holder")
    return verdict.pod_of(lease.record.holder)


@contextlib.asynccontextmanager
async def _forwarded(options: argparse.Namespace, pod: str) -> AsyncIterator[str]:
    """Forward a port of a Pod for as long as the block is open; gives the address here."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise RunError(
            f"kubectl is not installed: forward port {options.port} of Pod {pod} and give --server"
        )
    flags = [f"--kubeconfig={options.kubeconfig}"] if options.kubeconfig else []
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *flags,
        "port-forward",
        f"--namespace={options.lease_namespace}",
        f"pod/{pod}",
        f":{options.port}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(_SECONDS):
            line = await process.stdout.readline()
            said = (line or await process.stderr.read()).decode(errors="replace").strip()
        if not line.startswith(_READY):
            raise RunError(
                f"port {options.port} of Pod {pod} cannot be forwarded: {said or 'kubectl has ended'}"
            )
        port = int(line[len(_READY) :].split()[0])
        yield f"http://127.0.0.1:{port}"
    except TimeoutError as error:
        raise RunError(f"port {options.port} of Pod {pod} cannot be forwarded: no answer in time") from error
    finally:
        if process.returncode is None:
            process.kill()  # it has nothing to tidy up, and may not heed a request
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):  # whom it has started may hold its pipes for ever
                await process.wait()


def render(document: dict[str, Any]) -> list[str]:
    """Return what a scaler shows of an autoscaler as lines for people."""
    target = document["target"]
    lines = [
        f"{document['namespace']}/{document['name']} ({document['mode']}) scales {target['kind']} {target['name']}"
    ]
    if "error" in target:
        lines.append(f"  target: {target['error']}")
    else:
        owner = f", last set by {target['manager']}" if target["manager"] else ""
        lines.append(f"  target: {target['replicas']} asked for, {target['statusReplicas']} exist{owner}")
    lines += [
        f"  {each['type']} {each['status']} ({each['reason']}): {each['message']}"
        for each in document["status"].get("conditions", [])
    ]
    lines += _boost(document.get("boost"))
    if document["writers"]["pausedUntil"]:
        lines.append(
            f"  nothing is written until {document['writers']['pausedUntil']}: {document['writers']['pausedBy']}"
        )
    if document["last"] is not None:
        lines += ["", f"last decision, {document['last']['time']}"]
        lines += [f"  {_input(each)}" for each in document["last"]["inputs"]]
        lines += [f"  {step}" for step in document["last"]["trace"]]
    for entry in document["journal"]:
        lines += ["", _headline(entry)]
        lines += [f"  {_input(each)}" for each in entry["inputs"]]
        lines += [f"  {step}" for step in entry["trace"]]
        if entry["error"]:
            lines.append(f"  error: {entry['error']}")
    return lines


def _boost(boost: dict[str, Any] | None) -> list[str]:
    """Return what stands beside the decisions for a HorizontalPodAutoscaler."""
    if boost is None:
        return []
    lines = [f"  not boosted: {boost['fault']}"] if boost["fault"] else []
    if boost["demotedUntil"]:
        lines.append(
            f"  only advised until {boost['demotedUntil']}: {boost['demotedBy']} took back what was raised"
        )
    if floor := boost["floor"]:
        shown = (
            f"the autoscaler knows since {floor['shown']}"
            if floor["shown"]
            else "the autoscaler does not show it yet"
        )
        lines.append(f"  floor {floor['replicas']} since {floor['raised']}, until {floor['until']}: {shown}")
    return lines


def _headline(entry: dict[str, Any]) -> str:
    done = {"written": "scaled", "failed": "could not scale"}.get(entry["outcome"])
    counts = f"from {entry['currentReplicas']} to {entry['desiredReplicas']}"
    if done is None:
        same = entry["currentReplicas"] == entry["desiredReplicas"]
        what = f"stayed at {entry['currentReplicas']}" if same else f"would have gone {counts}"
    else:
        what = f"{done} {counts}"
    seen = entry.get("changeSeen")
    by = f"; {seen['manager']} had changed it by {seen['replicas']:+d}" if seen else ""
    return f"{entry['time']}: {what}{': ' if entry['reason'] else ''}{entry['reason']}{by}"


def _input(given: dict[str, Any]) -> str:
    age = "age unknown" if given["ageSeconds"] is None else f"{given['ageSeconds']:g} s old"
    if "unavailable" in given:
        return f"{given['metric']}: no value: {given['unavailable']}"
    values: list[int] = [given["value"]] if "value" in given else _listed(given["values"])
    shown = ", ".join(f"{value / 1000:g}" for value in values[:_SHOWN])
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    overdue = f", {given['overdue']}" if given["overdue"] else ""
    return f"{given['metric']}: {shown}{more} ({age}{overdue})"


def _listed(values: dict[str, int] | list[int]) -> list[int]:
    return list(values.values()) if isinstance(values, dict) else values
