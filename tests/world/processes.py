"""The native controller's path to its metrics: Fastpath as a process, and a proxy that delays.

The proxy stands between the API server and Fastpath, for all causes of late metrics: another adapter with a
cache, a long scrape interval. Answers about ``fastpath_replicas`` are never held back; all others are as old
as a story sets.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
from aiohttp import web
from yarl import URL

from adapter.model.autoscaling import boost as model
from fastpath_sandbox.listener import Listener
from tests.support import tools
from tests.support.adapter import DecodedAnswer, Reachable
from tests.support.processor import limited
from tests.world.clusters import Document
from tests.world.scalewrites import Audit, Place
from tests.world.workloads import CLOCK, HOME, RATIOS

ROOT = Path(__file__).parents[2]

_START_SECONDS = 40.0


class _Answer(NamedTuple):
    status: int
    body: bytes
    kind: str


class Version(NamedTuple):
    """A version of Fastpath: its command, and the tree that has its manifests."""

    command: tuple[str, ...]
    tree: Path

    @property
    def manifests(self) -> Path:
        return self.tree / "manifests"


THIS = Version((sys.executable, "-m", "adapter"), ROOT)
"""That of this tree."""


class Fastpath:
    """A process of `fastpath serve`, or of `fastpath scale` with its local pages, until the block ends.

    `start` may be called again after its end. Its log is shown when the block fails. `modules` is a folder of
    modules that come first, such as a `sitecustomize`; another `version` has none. `uid` is the Pod's.
    """

    def __init__(
        self,
        account: Reachable,
        directory: Path,
        *arguments: str,
        pod: str,
        command: str = "serve",
        home: str = HOME,
        modules: Path = ROOT,
        version: Version = THIS,
        uid: str = "",
    ) -> None:
        self.port = tools.free_port()
        self.pod = pod
        self.process: asyncio.subprocess.Process | None = None
        self._file = directory / f"{pod}.log"
        self._command = version.command
        path = f"{modules}:{ROOT}" if version is THIS else ""
        self._names = {"POD_NAME": pod, "POD_NAMESPACE": home, "PYTHONPATH": path}
        if uid:
            self._names["POD_UID"] = uid
        kubeconfig = account.kubeconfig(directory / f"{pod}.kubeconfig")
        serving = (
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={directory / pod}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
        )
        self._scheme = "https" if command == "serve" else "http"
        self._arguments = (
            command,
            *(serving if command == "serve" else [f"--local-address=127.0.0.1:{self.port}"]),
            f"--config={directory / 'rules.yaml'}",
            "--scrape-pod-cidrs=127.0.0.0/8",
            f"--lister-kubeconfig={kubeconfig}",
            *arguments,
        )

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(self.log)
        await self.end()

    async def start(self) -> None:
        """Start it and return when it is ready."""
        with self._file.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(*self._command, *self._arguments), stdout=log, stderr=log, env=os.environ | self._names
            )
        async with limited(_START_SECONDS):
            while self.process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.get("/readyz"))[0] == 200:
                        return
                await asyncio.sleep(0.05)
        raise AssertionError(f"{self.pod} did not start:\n{self.log}")

    async def get(self, path: str) -> DecodedAnswer:
        """Return status and content of a page for which no right is needed."""
        url = f"{self._scheme}://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
            return await DecodedAnswer.of(response)

    async def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait for that; nothing happens when it does not run."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(by)
            if by != signal.SIGKILL:  # else this would take its exit status
                self.process.send_signal(signal.SIGCONT)  # a story may have stopped it
            assert await self.process.wait() in {0, -signal.SIGKILL}, self.log

    @property
    def log(self) -> str:
        return self._file.read_text()


class Stale(NamedTuple):
    """An answer about a floor that was lower than what was published all the time while it was made."""

    time: float
    target: Place
    published: int
    answered: int


class Front(Listener):
    """Hands questions to any of `processes` that listens.

    An answer is that to the question `lag` requests ago, except for a floor or a ratio: a late ratio,
    multiplied by the current pods, makes the native controller swing forever, boosted or not.

    `others`, if given, answer all but floors: a cluster whose metrics do not end with the booster.
    `read_floors` reads the ConfigMaps with floors, None where the audit sees each change at once.
    """

    def __init__(
        self,
        audit: Audit,
        processes: Sequence[Fastpath],
        read_floors: Callable[[], Awaitable[Sequence[Document]]] | None,
        *,
        others: Sequence[Fastpath] = (),
        lag: int = 0,
        token: str,
        tls: ssl.SSLContext,
    ) -> None:
        super().__init__(self._handle, "127.0.0.1", 0, tls)
        self.processes = list(processes)
        self.others = list(others) or self.processes
        self.lag = lag
        self.stale: list[Stale] = []
        self.floors: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)
        """The answers about floors, by name of the autoscaler: when, status, and value or message."""
        self._audit = audit
        self._read_floors = read_floors
        self._before: defaultdict[str, deque[_Answer]] = defaultdict(deque)
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._turn = 0

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        assert self._session is not None
        await self._session.close()

    @property
    def is_late(self) -> bool:
        """Tell whether all answers that have been asked for are as late by now as they will be."""
        return bool(self._before) and all(len(each) > self.lag for each in self._before.values())

    async def ask(self, path: str, accept: str = "application/json") -> _Answer:
        """Return what the next process that listens answers now, and 503 where none does."""
        assert self._session is not None
        asked = self.processes if model.METRIC in path else self.others
        self._turn += 1
        for number in range(len(asked)):
            port = asked[(self._turn + number) % len(asked)].port
            url = URL(f"https://127.0.0.1:{port}{path}", encoded=True)
            headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
            with contextlib.suppress(aiohttp.ClientError):
                async with self._session.get(url, headers=headers, ssl=False) as response:
                    return _Answer(
                        response.status, await response.read(), response.headers.get("Content-Type", "")
                    )
        return _Answer(503, b"service unavailable", "text/plain")

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path_qs
        if model.METRIC in path:
            answer = await self._ask_floor(path)
        else:
            answer = await self.ask(path, request.headers.get("Accept", "application/json"))
            if answer.status == 200 and "/namespaces/" in path and not any(name in path for name in RATIOS):
                before = self._before[path]
                before.append(answer)
                while len(before) > self.lag + 1:
                    before.popleft()
                answer = before[0]
        return web.Response(status=answer.status, body=answer.body, headers={"Content-Type": answer.kind})

    async def _ask_floor(self, path: str) -> _Answer:
        named = [part for part in URL(path, encoded=True).path.split("/") if part]
        name = URL(path).query.get("labelSelector", "").partition("=")[2] or named[-2]
        target = Place(named[named.index("namespaces") + 1], name)
        at_first = self._audit.published(target, CLOCK.wall())
        answer = await self.ask(path)
        now = CLOCK.wall()
        published = min(at_first, self._audit.published(target, now))
        said = answer.body.decode()
        if answer.status == 200:
            (item,) = json.loads(said)["items"]
            said = item["value"]
            if int(said) < published and self._read_floors is not None:
                # a floor that has ended: the watch of the audit may be behind the answer
                published = min(published, self._audit.stored(await self._read_floors(), target, now))
            if int(said) < published:
                self.stale.append(Stale(now, target, published, int(said)))
        self.floors[name].append((now, answer.status, said))
        return answer
