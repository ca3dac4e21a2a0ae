"""What clients of the sandbox cluster meet, as data: `transcripts/NAME` has requests, and the answer to each.

A line after `= ` is a function of patches or selectors with its arguments in JSON, and below it its result. A
line after `$ ` is a request: method, path, body as YAML, and headers after `-H `. Below it is the answer. A
line after `! ` is a call of a method of `Cluster`, with its arguments in YAML. Uids are numbered as they
appear. `scripts/test tests/sandbox --update` writes what is answered now.
"""

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from yarl import URL

from fastpath_sandbox.apiserver import patches, selectors
from fastpath_sandbox.apiserver.kinds import KindTable
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.status import StatusFailure
from fastpath_sandbox.apiserver.store import Record

FOLDER = Path(__file__).parent / "transcripts"
TRANSCRIPTS = {path: path.read_text().splitlines() for path in sorted(FOLDER.iterdir())}
UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def send(http: aiohttp.ClientSession, base: str, line: str) -> AsyncIterator[str]:
    request, *lines = line.split(" -H ")
    method, path, *rest = request.split(" ", 2)
    headers = dict(each.split(": ", 1) for each in lines)
    data: Any = rest[0] if rest else None
    if data is not None and "Content-Type" not in headers:
        headers["Content-Type"] = "application/json"
        data = json.dumps(yaml.safe_load(data))
    async with http.request(method, URL(base + path, encoded=True), data=data, headers=headers) as response:
        text = await response.text()
        yield str(response.status)
        yield json.dumps(json.loads(text)) if response.content_type == "application/json" else text.strip()


def call(cluster: Cluster, line: str) -> None:
    method, *rest = line.split(" ", 1)
    getattr(cluster, method)(*yaml.safe_load(f"[{rest[0] if rest else ''}]"))


def record(labels: dict[str, str]) -> Record:
    document = {
        "metadata": {"name": "a", "namespace": "n", "labels": labels},
        "spec": {"nodeName": "node-1", "unschedulable": True},
        "status": {"phase": "Running"},
    }
    return Record(document, 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "merge": patches.merge,
    "strategic": patches.strategic,
    "json_patch": patches.json_patch,
    "labels": lambda text, labels: selectors.label_selector(text)(record(labels)),
    "fields": lambda kind, text: selectors.field_selector(KindTable().find(kind), text)(record({})),
}


def evaluate(line: str) -> str:
    function, given = line.split(" ", 1)
    arguments = json.loads(given)
    try:
        result = FUNCTIONS[function](*arguments)
    except StatusFailure as failure:
        return f"{failure.code} {failure.message}"
    assert arguments == json.loads(given), "what is given is not changed"
    return json.dumps(result)


def compare(path: Path, said: list[str], *, update: bool) -> None:
    uids: dict[str, str] = {}
    text = "".join(f"{line}\n" for line in said)
    text = UID.sub(lambda found: uids.setdefault(found[0], f"uid-{len(uids) + 1}"), text)
    if update:
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
async def test_transcript(
    path: Path, cluster: Cluster, http: aiohttp.ClientSession, pytestconfig: pytest.Config
) -> None:
    said: list[str] = []
    for line in TRANSCRIPTS[path]:
        if line.startswith(("$ ", "! ", "= ", "#")):
            said.append(line)
        if line.startswith("= "):
            said.append(evaluate(line[2:]))
        if line.startswith("! "):
            call(cluster, line[2:])
        elif line.startswith("$ "):
            said += [each async for each in send(http, cluster.url, line[2:])]
    compare(path, said, update=pytestconfig.getoption("update"))
