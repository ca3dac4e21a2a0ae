"""What a verb imports bounds its start and its memory.

Verbs that contact no server import no package that takes long to import. `serve` and `scale` import
none of the packages that only a kubeconfig, a proxy or the discovery worker needs.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import pytest

HEAVY = {"aiohttp", "prometheus_api_client", "requests", "rich", "urllib3", "uvloop"}
LIGHT = (
    "adapter.cli.main",
    "fastpath_tools.certs",
    "fastpath_tools.completion",
    "fastpath_tools.convert.command",
)
OF_RULES = (
    "fastpath_sandbox.demo.command",
    "fastpath_tools.boost.command",
    "fastpath_tools.check.command",
    "fastpath_tools.doctor.options",
    "fastpath_tools.evaluate",
    "fastpath_tools.forecast.options",
    "fastpath_tools.schedule.command",
)


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("modules", "left_out"),
    [
        (LIGHT, HEAVY | {"prometheus_client"}),
        (OF_RULES, HEAVY),
        (
            ("adapter.compose.app",),
            {"prometheus_api_client", "kubernetes_asyncio", "requests", "rich", "urllib3"},
        ),
    ],
)
async def test_modules_import_no_package_that_they_do_not_use(
    modules: Sequence[str], left_out: set[str]
) -> None:
    """One fresh interpreter imports them all: what none of them imports, each of them leaves out."""
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    assert set(modules) <= set(imported)
    assert not {name.partition(".")[0] for name in imported} & left_out
