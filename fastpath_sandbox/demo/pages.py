"""The pages of `fastpath ui` about the demo, from the verb in a process of its own, as a person starts it."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Sequence

from adapter.errors import RunError
from fastpath_sandbox.apiserver.server import Cluster

_START_SECONDS = 20.0
_SERVES = re.compile(r"serves (http://\S+)")
_GROUP_VERSIONS = (
    ("custom.metrics.k8s.io", "v1beta2"),
    ("custom.metrics.k8s.io", "v1beta1"),
    ("external.metrics.k8s.io", "v1beta1"),
)
SERVICE = {"namespace": "fastpath", "name": "fastpath"}


def register(cluster: Cluster, port: int) -> None:
    """Have the adapter at a local port serve the metrics APIs of the cluster, as with the manifests."""
    service = {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": port}]}
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": SERVICE, "spec": service})
    for priority, (group, version) in enumerate(reversed(_GROUP_VERSIONS), start=1):
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100 * priority,
            "insecureSkipTLSVerify": True,  # the adapter has a self-signed certificate
            "service": {**SERVICE, "port": port},
        }
        cluster.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{group}"},
                "spec": spec,
                "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Passed"}]},
            }
        )


@contextlib.asynccontextmanager
async def served(flags: Sequence[str]) -> AsyncIterator[str]:
    """Run the verb, which opens a browser; gives the address of the pages. RunError if it serves none."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "adapter",
        "ui",
        *flags,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    reading = None
    try:
        async with asyncio.timeout(_START_SECONDS):
            printed = (await process.stderr.readline()).decode(errors="replace").strip()
        address = _SERVES.search(printed)
        if address is None:
            raise RunError(f"the pages are not served: {printed or 'fastpath ui has ended'}")
        reading = asyncio.create_task(_drain(process.stderr), name="messages of fastpath ui")
        yield address[1]
    except TimeoutError as error:
        raise RunError("the pages are not served: fastpath ui does not start in time") from error
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if reading is not None:
            await reading


async def _drain(messages: asyncio.StreamReader) -> None:
    """Read the messages, so that the process never waits for room; the pages show what goes wrong."""
    while await messages.read(1 << 16):
        pass
