"""`fastpath ui`: pages about the autoscalers of a cluster, for a browser on this machine."""

import asyncio
import logging
import signal
import webbrowser
from contextlib import AsyncExitStack

from adapter.cli import command_line
from adapter.telemetry import logs
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.live import cluster_options
from fastpath_tools.ui import fleet_page, server
from fastpath_tools.ui.autoscaler_page import AutoscalerPage
from fastpath_tools.ui.fleet_page import FleetPage
from fastpath_tools.ui.fleet_reading import FleetReader
from fastpath_tools.ui.options import COMMAND, UiOptions
from fastpath_tools.ui.pages import Page, Templates
from fastpath_tools.ui.server import PageServer


@command_line.verb(COMMAND)
def main(options: UiOptions) -> int:
    """Serve until SIGINT or SIGTERM. InputError for the command line, OSError for a port that is taken."""
    logs.configure_logging(0)
    logging.getLogger("adapter").setLevel(logging.ERROR)  # the pages show what goes wrong
    asyncio.run(_run(options))
    return 0


async def _run(options: UiOptions) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with AsyncExitStack() as stack:
        doctor = await Doctor.open(options, stack)
        token = server.make_token()
        templates = Templates(f"/{token}/", await asyncio.to_thread(cluster_options.read_context, options))
        namespace, name = options.target
        reader = FleetReader(doctor, namespace)
        fleet = FleetPage(reader, templates, doctor.clock)

        def find(path: str) -> Page | None:
            if path == fleet_page.FLEET:
                return fleet
            key = fleet_page.parse_autoscaler(path)
            return None if key is None else AutoscalerPage(doctor, templates, reader, *key)

        port = await stack.enter_async_context(PageServer(token, templates, find).listening(options.port))
        first = fleet_page.of_autoscaler(namespace, name) if name else fleet_page.FLEET
        address = f"http://{server.ADDRESS}:{port}/{token}/{first}"
        async with asyncio.TaskGroup() as tasks:
            examining = tasks.create_task(reader.examine(), name="examine autoscalers")
            command_line.tell("ui", f"serves {address}")
            if not options.no_browser:
                await asyncio.to_thread(webbrowser.open, address)
            await stopped.wait()
            examining.cancel()
