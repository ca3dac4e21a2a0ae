"""Verbs that contact no server start quickly: their modules import no package that takes long to import."""

import asyncio
import subprocess
import sys

import pytest

HEAVY = ("aiohttp", "kubernetes_asyncio", "prometheus_api_client", "requests", "rich", "urllib3", "uvloop")


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "module",
    ["main", "check.command", "convert", "certs", "evaluate", "boost", "demo"],
)
async def test_no_heavy_package_is_imported(module: str) -> None:
    script = f"import sys, adapter.cli.{module}; print(*sys.modules)"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    assert f"adapter.cli.{module}" in imported
    assert not {name for name in imported if name.partition(".")[0] in HEAVY}
