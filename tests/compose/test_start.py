"""How `fastpath serve` ends when it cannot start."""

import asyncio
import gc
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.compose import app
from adapter.config.options import SERVE
from fastpath_sandbox.apiserver.server import Cluster


async def test_a_port_in_use_is_the_only_complaint(tmp_path: Path) -> None:
    """What was not begun leaves no warning, which would be an error here."""
    (tmp_path / "rules.yaml").write_text("rules: []\n")
    async with Cluster() as cluster:
        options, _ = SERVE.parse(
            [
                "--bind-address=127.0.0.1",
                "--serve-floors",
                f"--config={tmp_path / 'rules.yaml'}",
                "--prometheus-url=http://127.0.0.1:1",
                f"--lister-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}",
                f"--cert-dir={tmp_path / 'certificates'}",
            ]
        )
        with socket.create_server(("127.0.0.1", 0)) as taken:
            options = replace(options, secure_port=taken.getsockname()[1])
            with pytest.raises(OSError, match="address already in use"):
                await app.run(options, "test", asyncio.Event())
        gc.collect()
