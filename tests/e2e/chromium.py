"""Drives Debian's headless Chromium by the DevTools protocol, and shows a page as its accessibility tree.

The browser resolves no name and has no route to another machine, so that a page which loads something from
elsewhere is noticed. https://chromedevtools.github.io/devtools-protocol/ describes the methods and events.
"""

import asyncio
import base64
import contextlib
import itertools
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.support.processor import limited

PROGRAM = PACKAGE = "chromium"
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which root cannot have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--remote-debugging-port=0",
)
_SECONDS = 30.0
_LISTENING = re.compile(rb"DevTools listening on (ws://\S+)")
_LARGEST = 64 * 1024 * 1024


class Node(NamedTuple):
    """What assistive technology sees of an element: its role and name, and the level of a heading."""

    role: str
    name: str
    level: int = 0


class DevTools:
    """The connection to a browser: calls, each with its answer, and the events of each session."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        async with limited(_SECONDS):
            content: dict[str, Any] = await answer
        return content

    async def receive(self) -> None:
        """Hand out answers and events until the browser ends the connection."""
        async for message in self._socket:
            content = message.json()
            if "id" not in content:
                if listener := self.listeners.get(content.get("sessionId", "")):
                    listener(content["method"], content["params"])
            elif "error" in content:
                self._answers.pop(content["id"]).set_exception(RuntimeError(content["error"]["message"]))
            else:
                self._answers.pop(content["id"]).set_result(content["result"])


class Tab:
    """A page. `requests` are the addresses it asked for, `problems` what the browser reported of it."""

    def __init__(self, tools: DevTools, session: str) -> None:
        self._tools = tools
        self._session = session
        self._loaded = asyncio.Event()
        self.requests: list[str] = []
        self.problems: list[str] = []
        tools.listeners[session] = self._note

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._tools.call(method, self._session, **parameters)

    async def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def open(self, url: str) -> None:
        """Load an address; returns when all that the page names is loaded."""
        self._loaded.clear()
        navigated = await self.call("Page.navigate", url=url)
        assert "errorText" not in navigated, f"{url}: {navigated['errorText']}"
        async with limited(_SECONDS):
            await self._loaded.wait()

    async def tree(self) -> list[Node]:
        """Return the accessibility tree from the top down, without what is ignored there."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        by_id = {node["nodeId"]: node for node in nodes}

        def walk(node: Mapping[str, Any]) -> list[Node]:
            below = [
                one for child in node.get("childIds", ()) if child in by_id for one in walk(by_id[child])
            ]
            if node["ignored"] or node["role"]["value"] in {"InlineTextBox", "generic"}:
                return below
            levels = [one["value"]["value"] for one in node.get("properties", ()) if one["name"] == "level"]
            role = node["role"]["value"]
            name = node.get("name", {}).get("value", "") or node.get("value", {}).get("value", "")
            return [Node(role, str(name), *levels), *below]

        return walk(nodes[0])

    async def text(self) -> str:
        """Return the text of the accessibility tree, a line for each piece."""
        return "\n".join(node.name for node in await self.tree() if node.role == "StaticText")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page, also where the page itself may run no scripts."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def picture(self) -> bytes:
        """Return the visible part as PNG."""
        shot = await self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        return base64.b64decode(shot["data"])

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requests.append(event["url"])
        elif method == "Log.entryAdded" and event["entry"]["level"] in {"error", "warning"}:
            self.problems.append(f"{event['entry']['text']} {event['entry'].get('url', '')}".strip())
        elif method == "Runtime.exceptionThrown":
            self.problems.append(event["exceptionDetails"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {event['message']}")


class Browser:
    def __init__(self, tools: DevTools) -> None:
        self._tools = tools

    async def tab(
        self, *, width: int = 1280, height: int = 800, dark: bool = False, scripts: bool = True
    ) -> Tab:
        """Return a new page of this size, which prefers dark colors and runs scripts or not.

        It has a window of its own, so that no other page hides it.
        """
        target = await self._tools.call("Target.createTarget", url="about:blank", newWindow=True)
        attached = await self._tools.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self._tools, attached["sessionId"])
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            await tab.call(f"{domain}.enable")
        await tab.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await tab.call("Emulation.setEmulatedMedia", features=[scheme])
        await tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        return tab


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Browser]:
    """Run a browser whose profile is in a folder. RuntimeError if it does not start."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise RuntimeError(f"{PROGRAM} is not installed; Debian's package {PACKAGE} has it")
    process = await asyncio.create_subprocess_exec(
        program,
        *_FLAGS,
        f"--user-data-dir={directory}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"BREAKPAD_DUMP_LOCATION": str(directory)},  # else below the home
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        async with limited(_SECONDS):
            address = await _find_address(process.stderr)
        draining = asyncio.create_task(_drain(process.stderr), name="messages of the browser")
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=_LARGEST) as socket,
        ):
            tools = DevTools(socket)
            receiving = asyncio.create_task(tools.receive(), name="events of the browser")
            yield Browser(tools)
            await tools.call("Browser.close")
            await receiving
            await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):  # its children are in its group too
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await draining


async def _find_address(messages: asyncio.StreamReader) -> str:
    printed = b""
    async for line in messages:
        printed += line
        if address := _LISTENING.search(line):
            return address[1].decode()
    raise RuntimeError(f"{PROGRAM} did not start: {printed.decode(errors='replace')}")


async def _drain(messages: asyncio.StreamReader) -> None:
    """Read the messages, so that the browser never waits for room."""
    while await messages.read(1 << 16):
        pass
