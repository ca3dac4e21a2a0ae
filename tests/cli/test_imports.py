"""What a verb imports bounds its start and its memory.

Verbs that contact no server import no package that takes long to import. `serve` and `scale` import
none of the packages that only a proxy or the discovery worker needs.
"""

import asyncio
import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "prometheus_api_client", "requests", "rich", "urllib3", "uvloop"}
METRICS = {"prometheus_client"}

LEFT_OUT = {
    "adapter.cli.main": HEAVY | METRICS,
    "adapter.compose.app": {"prometheus_api_client", "requests", "rich", "urllib3"},
    "fastpath_sandbox.demo.command": HEAVY,
    "fastpath_tools.boost.command": HEAVY,
    "fastpath_tools.certs": HEAVY | METRICS,
    "fastpath_tools.check.command": HEAVY,
    "fastpath_tools.completion": HEAVY | METRICS,
    "fastpath_tools.convert.command": HEAVY | METRICS,
    "fastpath_tools.doctor.options": HEAVY,
    "fastpath_tools.evaluate": HEAVY,
    "fastpath_tools.forecast.options": HEAVY,
    "fastpath_tools.schedule.command": HEAVY,
}
"""By module, the packages that it does not import."""


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("module", LEFT_OUT)
async def test_a_module_imports_no_package_that_it_does_not_use(module: str) -> None:
    assert not await packages_of(module) & LEFT_OUT[module]


async def packages_of(module: str) -> set[str]:
    """Return the packages that a fresh interpreter has imported after `module`."""
    script = f"import sys, {module}; print(*sys.modules)"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    assert module in imported
    return {name.partition(".")[0] for name in imported}
