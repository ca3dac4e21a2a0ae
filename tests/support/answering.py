"""A server on loopback that answers what a test says, and keeps the requests."""

import ssl
from pathlib import Path

import pytest
from aiohttp import web

from fastpath_sandbox.listener import Listener


class AnsweringServer(Listener):
    """Answers each request with `status` and `body`."""

    def __init__(
        self, body: bytes = b"{}", *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(self._keep, host, 0, tls)
        self.host, self.body, self.status = host, body, 200
        self.requests: list[web.BaseRequest] = []

    @property
    def port(self) -> int:
        return self._port

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    async def answer(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=self.status, body=self.body)

    async def _keep(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        return await self.answer(request)


def forward(folder: Path, monkeypatch: pytest.MonkeyPatch, server: Listener) -> Path:
    """Have kubectl forward its port to a server; return the file with its command lines."""
    kubectl, calls = folder / "kubectl", folder / "calls"
    words = f"Forwarding from {server.address} -> 10254"
    kubectl.write_text(f"#!/bin/sh\necho \"$@\" >>{calls}\necho '{words}'\nexec sleep 60\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return calls
