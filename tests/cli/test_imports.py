"""What a verb imports bounds its start and its memory.

Verbs that contact no server import no package that takes long to import. `serve` and `scale` import
none of the packages that only a proxy or the discovery worker needs.
"""

import asyncio
import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "prometheus_api_client", "requests", "rich", "urllib3", "uvloop"}
UNUSED_BY_SERVERS = {"prometheus_api_client", "requests", "rich", "urllib3"}


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "module",
    [
        "adapter.cli.main",
        "fastpath_tools.check.command",
        "fastpath_tools.convert.command",
        "fastpath_tools.certs",
        "fastpath_tools.evaluate",
        "fastpath_tools.boost.command",
        "fastpath_sandbox.demo.command",
        "fastpath_tools.completion",
        "fastpath_tools.doctor.options",
        "fastpath_tools.forecast.options",
        "fastpath_tools.schedule.command",
    ],
)
async def test_no_heavy_package_is_imported(module: str) -> None:
    assert not await packages_of(module) & HEAVY


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "module",
    [
        "adapter.cli.main",
        "fastpath_tools.certs",
        "fastpath_tools.convert.command",
        "fastpath_tools.completion",
    ],
)
async def test_no_metrics_are_imported_where_none_are_kept(module: str) -> None:
    assert "prometheus_client" not in await packages_of(module)


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_server_imports_no_package_that_it_does_not_use() -> None:
    assert not await packages_of("adapter.compose.app") & UNUSED_BY_SERVERS


async def packages_of(module: str) -> set[str]:
    """Return the packages that a fresh interpreter has imported after `module`."""
    script = f"import sys, {module}; print(*sys.modules)"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    assert module in imported
    return {name.partition(".")[0] for name in imported}
