"""Takes the pictures of the README: `python -m scripts.generate.screenshots [MINUTES]`.

It runs the demo for some minutes, so that the axis has something to show, and takes a picture of the page of
an autoscaler in light and in dark: its last five minutes, in which the count followed steps of the load, and
the next change. It needs Debian's packages chromium and prometheus.
"""

import asyncio
import io
import os
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from fastpath_sandbox.demo import run, world
from tests.e2e import chromium
from tests.support import waiting

FOLDER = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 1280

_BOTTOM = "Math.ceil(document.getElementById('chain').getBoundingClientRect().bottom) + 24"
"""Where the pictures end: below the chain of hops."""

MOMENT = re.compile(r"\d replicas at \S+ UTC if the load stays")
"""What the page says while the scaler waits to follow the load downwards."""


async def take(minutes: float) -> dict[str, bytes]:
    """Return the pictures by the names of their files."""
    os.environ["BROWSER"] = "true"  # the demo opens no other browser
    screen = io.StringIO()
    demo = run.run("screenshots", seconds=None, port=0, console=Console(file=screen, width=80), ui=True)
    with tempfile.TemporaryDirectory() as folder:
        async with waiting.running(demo), chromium.running(Path(folder)) as browser:
            await waiting.until(lambda: re.search(r"^pages .*\n", screen.getvalue(), re.MULTILINE), 60.0)
            address = dict(re.findall(r"^(\w+) +(\S+)", screen.getvalue(), re.MULTILINE))["pages"]
            page = f"{address}autoscalers/{world.NAMESPACE}/{world.FAST}?span=5m"
            await asyncio.sleep(60 * minutes)
            tabs = {}
            for scheme in ("light", "dark"):
                tab = tabs[f"ui-{scheme}.png"] = await browser.tab(width=WIDTH, dark=scheme == "dark")
                await tab.open(page)
                await tab.resize(WIDTH, await tab.evaluate(_BOTTOM))
            while not all([MOMENT.search(await tab.text()) for tab in tabs.values()]):  # noqa: ASYNC110 - a page
                await asyncio.sleep(0.2)
            return {name: await tab.picture() for name, tab in tabs.items()}


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.5
    for name, picture in asyncio.run(take(minutes)).items():
        (FOLDER / name).write_bytes(picture)


if __name__ == "__main__":
    main()
