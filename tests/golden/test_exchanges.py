"""What the sandbox's API server answers, as data: each file in `apiserver` has requests to one new cluster.

A line after `> ` is a request, with headers as `Name=value`. Below it are its body, `< ` with the status, and
the answer, as YAML. Names that the server makes up are left out. `scripts/test tests/golden --update` writes
the answers of now.
"""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from fastpath_sandbox.apiserver.server import Cluster
from tests.support.scripts import Recorded

FILES = sorted((Path(__file__).parent / "apiserver").glob("*.http"))
MADE_UP = re.compile(r"\b\w{8}-\w{4}-\w{4}-\w{4}-\w{12}\b|(?<=web-)[a-z0-9]{5}\b|(?<=127.0.0.1:)\d+")


def requests(text: str) -> Iterator[tuple[str, str]]:
    """Yield the line and the body of each request."""
    for part in re.split(r"^> ", text, flags=re.MULTILINE)[1:]:
        line, _, rest = part.partition("\n")
        yield line, re.split(r"^< .*", rest, maxsplit=1, flags=re.MULTILINE)[0]


async def answer(http: aiohttp.ClientSession, line: str, body: str) -> str:
    method, path, *headers = shlex.split(line)
    given = {"Content-Type": "application/yaml"} | dict(header.split("=", 1) for header in headers)
    async with http.request(method, path, data=body or None, headers=given) as response:
        text = await response.text()
        if response.content_type == "application/json":
            text = yaml.dump(json.loads(text), Dumper=yaml.CSafeDumper, width=1_000)
        return f"< {response.status}\n{MADE_UP.sub('...', text)}"


async def exchange(text: str) -> str:
    """Return the same requests with the answers of a new cluster."""
    async with Cluster() as cluster, aiohttp.ClientSession(cluster.url) as http:
        parts = [f"> {line}\n{body}{await answer(http, line, body)}\n" for line, body in requests(text)]
    return "".join(parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_exchange(path: Path, recorded: Recorded) -> None:
    recorded(path, asyncio.run(exchange(path.read_text())))
