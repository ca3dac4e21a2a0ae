"""`fastpath explain NAMESPACE/NAME`: the journal of one autoscaler, from the process that decides about it.

With --server it reads from that address. Without it, it reads the Lease, and forwards the port of the Pod
that holds it with `kubectl port-forward`.
"""

import asyncio
import contextlib
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import http_exceptions

from adapter import net
from adapter.cli import cluster_options, command_line
from adapter.cli.cluster_options import NAMESPACE, KubeconfigOptions
from adapter.compose.clock import SystemClock
from adapter.config import checks
from adapter.config.option_fields import Command, arguments, option, renamed, replaced
from adapter.config.pflag import FlagType
from adapter.errors import Fault, InputError, RunError
from adapter.kubernetes import leader_election
from adapter.kubernetes.lease import KubernetesLeases
from adapter.model.autoscaling import shards
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_SECONDS = 10.0
_SHOWN = 10
_NAME = re.compile(r"[^/]+/[^/]+")
_READY = b"Forwarding from 127.0.0.1:"
_NAME_ADVICE = "; --tls-server-name gives the name to check, such as fastpath.fastpath.svc"

_START_PARTS = (
    ("scheduled", "created to scheduled"),
    ("started", "scheduled to containers started"),
    ("initialized", "  of which init containers"),
    ("ready", "containers started to Ready"),
)
_LEFT_OUT = (
    ("restarted", "restarted before they were Ready"),
    ("ended", "ended before they were Ready"),
    ("incoherent", "with times that contradict each other"),
)
_STARTING = (
    ("noNode", "not scheduled"),
    ("pullFails", "whose image cannot be pulled"),
    ("crashing", "whose containers were restarted"),
)

_server = partial(option, group="Server")
_server_file = partial(_server, FlagType.TEXT, "", metavar="file")
_lease = partial(option, group="Lease")


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(KubeconfigOptions):
    """The autoscaler, and the process whose journal is read."""

    autoscalers: tuple[str, ...] = arguments()
    server: str = _server(
        FlagType.TEXT,
        "",
        "Address of the process that leads, such as http://127.0.0.1:10254; without it the Lease names "
        "its Pod.",
        metavar="url",
    )
    token_file: str = _server_file("File with a bearer token for --server.")
    ca_file: str = _server_file("Certificate authorities for the certificate of --server.")
    tls_server_name: str = _server(
        FlagType.TEXT,
        "",
        "Name that the certificate of --server is checked for, such as fastpath.fastpath.svc; without it the "
        "host of --server.",
        metavar="name",
    )
    namespace: str = _lease(
        FlagType.TEXT, NAMESPACE, "Namespace of Fastpath: of the Lease and of the Pod.", metavar="name"
    )
    lease_name: str = _lease(
        FlagType.TEXT, "fastpath-scaler", "Name of the Lease of the scaler.", metavar="name"
    )
    shard: str = _lease(
        FlagType.TEXT,
        "1/1",
        "Shard of the scaler, the i-th of n; each shard has its own Lease.",
        metavar="i/n",
        check=checks.shard,
    )
    port: int = _lease(
        FlagType.INT, "10254", "Local port of the Pod where it shows its journal.", check=checks.port_number
    )
    last: int = option(
        FlagType.INT,
        "0",
        "Show only this many of the newest entries of the journal; 0 shows all.",
        group="Output",
        check=checks.not_negative,
    )
    output: str = command_line.output("text", "json", help_="text, or json for the whole document.")

    @property
    def key(self) -> tuple[str, str]:
        namespace, _, name = self.autoscalers[0].partition("/")
        return namespace, name

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        given_name = " ".join(self.autoscalers)
        if len(self.autoscalers) != 1 or not _NAME.fullmatch(given_name):
            yield Fault("NAMESPACE/NAME", given_name, "expected namespace and name, such as shop/web")
        if self.server and not _is_server(self.server):
            yield Fault("--server", self.server, "expected a URL such as http://127.0.0.1:10254")


COMMAND = Command(
    verb="explain",
    options=ExplainOptions,
    usage="NAMESPACE/NAME [flags]",
    about="""\
Shows what the scaler decided for one autoscaler and why: the last decision, then the journal,
newest first. It reads the journal of the process that leads: at --server, or else from the Pod that
the Lease names, whose port it forwards with kubectl.
""",
    deprecated=(renamed("lease-namespace", "namespace"), replaced("json", "output", "json")),
)


def main(argv: Sequence[str]) -> int:
    """Print what was decided and why; 1 if the scaler cannot be asked, 2 for a wrong command line."""
    options = command_line.read(COMMAND, argv)
    if options is None:
        return 0
    document = asyncio.run(fetch(options))
    if options.output == "json":
        print(command_line.to_json(document), end="")
    else:
        print("\n".join(render(document, options.last)))
    return 0


def _is_server(text: str) -> bool:
    """Tell whether a text is a URL that a path can be added to."""
    return checks.is_url(text) and not urlsplit(text).query and not urlsplit(text).fragment


async def fetch(options: ExplainOptions) -> dict[str, Any]:
    """Return what the process that leads shows of the autoscaler. RunError if that cannot be read."""
    path = "/debug/fastpath/autoscalers/{}/{}".format(*options.key)
    if options.server:
        return await _get(options, options.server.rstrip("/") + path)
    pod = await _find_leader(options)
    async with _forwarded(options, pod) as address:
        return await _get(options, address + path)


async def _get(options: ExplainOptions, url: str) -> dict[str, Any]:
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
        advice = _NAME_ADVICE if net.is_wrong_name(error) else ""
        raise RunError(f"{url}: {net.describe_error(error)}{advice}") from error
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise RunError(f"{url}: {response.status}: not a response of a Fastpath scaler") from error
    if response.status != 200:
        raise RunError(f"{url}: {document.get('message') or response.reason}")
    return document


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


async def _find_leader(options: ExplainOptions) -> str:
    clock = SystemClock()
    problems = ProblemLog(Monitoring(), clock)
    name = shards.parse_shard(options.shard).lease_name(options.lease_name)
    async with cluster_options.connect(options, clock, problems) as client:
        lease = await KubernetesLeases(client, options.namespace, name).fetch(_SECONDS)
    if lease is None or not lease.record.holder:
        raise RunError(f"no leader: the Lease {options.namespace}/{name} has no holder")
    return leader_election.pod_of(lease.record.holder)


@contextlib.asynccontextmanager
async def _forwarded(options: ExplainOptions, pod: str) -> AsyncIterator[str]:
    """Forward a port of a Pod for as long as the block is open; gives the address here."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise RunError(
            f"kubectl is not installed: forward port {options.port} of Pod {pod} and give --server"
        )
    failure = f"port {options.port} of Pod {pod} cannot be forwarded"
    connection = {"kubeconfig": options.kubeconfig, "context": options.context, "as": options.impersonate}
    flags = [f"--{name}={value}" for name, value in connection.items() if value]
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *flags,
        "port-forward",
        f"--namespace={options.namespace}",
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
            raise RunError(f"{failure}: {said or 'kubectl has ended'}")
        port = int(line[len(_READY) :].split()[0])
        yield f"http://127.0.0.1:{port}"
    except TimeoutError as error:
        raise RunError(f"{failure}: no answer in time") from error
    finally:
        if process.returncode is None:
            process.kill()  # it has nothing to tidy up, and may not heed a request
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):  # a child of it may keep its pipes open
                await process.wait()


def render(document: dict[str, Any], last: int = 0) -> list[str]:
    """Return what a scaler shows of an autoscaler as lines for people.

    Of the journal it shows the newest `last` entries, all for 0.
    """
    target, writers = document["target"], document["writers"]
    autoscaler = f"{document['namespace']}/{document['name']} ({document['mode']})"
    lines = [f"{autoscaler} scales {target['kind']} {target['name']}"]
    if "error" in target:
        lines.append(f"  target: {target['error']}")
    else:
        owner = f", last set by {target['manager']}" if target["manager"] else ""
        counts = f"spec.replicas {target['replicas']}, status.replicas {target['statusReplicas']}"
        lines.append(f"  target: {counts}{owner}")
    lines += [
        f"  {each['type']} {each['status']} ({each['reason']}): {each['message']}"
        for each in document["status"].get("conditions", [])
    ]
    lines += _ready_times(document.get("readyTimes"))
    lines += _boost(document.get("boost"))
    lines += _forecast(document.get("forecast"))
    if writers["pausedUntil"]:
        lines.append(f"  scaling suspended until {writers['pausedUntil']}: {writers['pausedBy']}")
    if decision := document["last"]:
        lines += ["", f"last decision, {decision['time']}", *_steps(decision)]
    newest_first = document["journal"][::-1]
    for entry in newest_first[: last or None]:
        lines += ["", _headline(entry), *_steps(entry)]
        if entry["error"]:
            lines.append(f"  error: {entry['error']}")
    return lines


def _steps(decision: dict[str, Any]) -> list[str]:
    """Return what a decision was made from, and how; a sentence that several metrics share stands once."""
    steps = [*map(_input, decision["inputs"]), *decision["trace"]]
    return [f"  {step}" for step in dict.fromkeys(steps)]


def _boost(boost: dict[str, Any] | None) -> list[str]:
    """Return what stands beside the decisions for a HorizontalPodAutoscaler."""
    if boost is None:
        return []
    lines = [f"  not boosted: {boost['fault']}"] if boost["fault"] else []
    if boost["demotedUntil"]:
        by = f"{boost['demotedBy']} reverted a raise"
        lines.append(f"  advice only until {boost['demotedUntil']}: {by}")
    if floor := boost["floor"]:
        shown = f"in the HPA's status since {floor['shown']}"
        if not floor["shown"]:
            shown = "not in the HPA's status yet"
        lines.append(f"  floor {floor['replicas']} since {floor['raised']}, until {floor['until']}: {shown}")
    return lines


def _forecast(shown: dict[str, Any] | None) -> list[str]:
    """Return the floor of a forecast; nothing without one. The condition ForecastReady says the rest."""
    if shown is None:
        return []
    card = shown["card"] or {"mode": "", "verdict": {"chosen": ""}}
    chosen = card["verdict"]["chosen"]
    if shown["floor"]:
        return [f"  forecast: floor {shown['floor']}, by candidate {chosen}"]
    why = shown["withheld"] or (f"mode {card['mode']}" if chosen else "no candidate acts")
    return [f"  forecast: no floor ({why})"]


def _ready_times(shown: dict[str, Any] | None) -> list[str]:
    """Return how long pods take to be Ready; nothing for a scaler that is older than this."""
    if shown is None:
        return []
    lines = []
    if seconds := shown.get("seconds"):
        lines.append(f"  time to Ready (last {_pods(shown['pods'])}): {_percentiles(seconds['total'])}")
        lines += [
            f"    {words}: {_percentiles(seconds[part])}"
            for part, words in _START_PARTS
            if part in seconds and (part != "initialized" or seconds[part]["p95"])
        ]
    counted = {
        "no node fitted at first": shown.get("unschedulable", 0),
        "an image could not be pulled at first": shown.get("pullFailed", 0),
    }
    lines += [f"    of {_pods(count)} {what}" for what, count in counted.items() if count]
    left_out = shown["leftOut"]
    others = [f"{left_out[key]} {what}" for key, what in _LEFT_OUT if left_out[key]]
    if others:
        lines.append(f"  pods without a time to Ready: {', '.join(others)}")
    return lines + _starting(shown["starting"])


def _starting(shown: dict[str, int] | None) -> list[str]:
    if shown is None or not shown["pods"]:
        return []
    why = [f"{shown[key]} {what}" for key, what in _STARTING if shown[key]]
    return [f"  {_pods(shown['pods'])} never Ready yet{': ' if why else ''}{', '.join(why)}"]


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _percentiles(seconds: dict[str, float]) -> str:
    return f"p50 {seconds['p50']:g} s, p95 {seconds['p95']:g} s"


def _headline(entry: dict[str, Any]) -> str:
    done = {"written": "scaled", "failed": "could not scale"}.get(entry["outcome"])
    counts = f"from {entry['currentReplicas']} to {entry['desiredReplicas']}"
    if done is None:
        same = entry["currentReplicas"] == entry["desiredReplicas"]
        what = f"stayed at {entry['currentReplicas']}" if same else f"would have scaled {counts}"
    else:
        what = f"{done} {counts}"
    seen = entry.get("changeSeen")
    by = f"; {seen['manager']} had changed the replicas by {seen['replicas']:+d}" if seen else ""
    return f"{entry['time']}: {what}{': ' if entry['reason'] else ''}{entry['reason']}{by}"


def _input(given: dict[str, Any]) -> str:
    age = "age unknown" if given["ageSeconds"] is None else f"{given['ageSeconds']:g} s old"
    if "unavailable" in given:
        return f"{given['metric']}: no value: {given['unavailable']}"
    listed = given["values"] if "value" not in given else [given["value"]]
    values: list[int] = list(listed.values()) if isinstance(listed, dict) else listed
    shown = ", ".join(f"{value / 1000:g}" for value in values[:_SHOWN])
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    overdue = f", {given['overdue']}" if given["overdue"] else ""
    return f"{given['metric']}: {shown}{more} ({age}{overdue})"
