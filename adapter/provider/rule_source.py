"""The rules in force: read from files, compiled for the cluster's resources, and again after changes.

Files are polled rather than watched: a ConfigMap is swapped by a symbolic link, which a watch on the file
does not see, and a poll costs some microseconds.

At start a faulty rule is left out and reported. Later any fault keeps all rules as they are, because removing
a rule from a running cluster is worse than keeping its older version.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adapter.config import rules_file
from adapter.config.rules_config import Parsed, RulesConfig
from adapter.errors import Fault, InputError, KubernetesError, NotSyncedError, in_order
from adapter.model.clock import Clock
from adapter.model.objects.resources import Catalogue
from adapter.provider import text_files
from adapter.provider.relist import Relister
from adapter.rules import compile as compiler
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

if TYPE_CHECKING:  # verbs that read rules files start without aiohttp
    from adapter.kubernetes.discovery import CatalogueSource

_log = logging.getLogger(__name__)

# Seconds between two checks of files and resources.
PERIOD = 1.0

SUFFIXES = (".yaml", ".yml", ".json")
_FLAG = "--config"

EMPTY = "expected rules; the file is empty (to remove all rules write: rules: [])"
"""The fault of an empty file. At start `fastpath serve` takes one as no rules, as prometheus-adapter does."""


class RulesFiles:
    """The paths of a command line: files, and folders whose YAML and JSON files are read by name."""

    def __init__(self, paths: Sequence[str], *, flag: str = _FLAG) -> None:
        """`flag` is the flag that faults name as the source of the paths."""
        self._paths = tuple(map(Path, paths))
        self._flag = flag
        self._seen: object = None

    def read(self) -> Parsed:
        """Return the content of all files together; a file that cannot be read is a fatal fault."""
        self._seen = self._signature()
        fatal: list[Fault] = []
        return self._parse(list(self.texts(fatal)), fatal)

    def _parse(self, texts: Sequence[tuple[str, str]], fatal: list[Fault]) -> Parsed:
        parsed = [rules_file.parse_rules(text, source) for source, text in texts]
        merged, doubled = rules_file.merge([one.config for one in parsed])
        faults = tuple(fault for one in parsed for fault in one.faults)
        fatal += [fault for one in parsed for fault in one.fatal]
        return Parsed(merged, (*faults, *doubled), tuple(fatal))

    def texts(self, fatal: list[Fault]) -> Iterator[tuple[str, str]]:
        """Yield name and text of each file; files that cannot be read are added to `fatal`."""
        for path in self._files(fatal):
            try:
                yield str(path), text_files.read_text(path)
            except (OSError, UnicodeDecodeError) as error:
                fatal.append(Fault(self._flag, str(path), f"expected a readable file: {reason_of(error)}"))

    def poll(self) -> Parsed | None:
        """Return the content of the files if one has changed since the last read, else None.

        A file that has become empty is a fatal fault, since it is more likely half written than intended.
        `rules: []` removes all rules.
        """
        signature = self._signature()
        if signature == self._seen:
            return None
        self._seen = signature
        fatal: list[Fault] = []
        texts = list(self.texts(fatal))
        fatal += [Fault(self._flag, source, EMPTY) for source, text in texts if not text.strip()]
        return self._parse(texts, fatal)

    def _files(self, fatal: list[Fault]) -> list[Path]:
        files = []
        for path in self._paths:
            try:
                if not path.is_dir():
                    files.append(path)
                    continue
                entries = list(path.iterdir())
            except OSError as error:
                expected = f"expected a readable file or folder: {reason_of(error)}"
                fatal.append(Fault(self._flag, str(path), expected))
                continue
            inside = [entry for entry in entries if entry.suffix in SUFFIXES and entry.name[0] != "."]
            if not inside:
                expected = f"expected a folder with at least one {', '.join(SUFFIXES)} file"
                fatal.append(Fault(self._flag, str(path), expected))
            files += sorted(inside)
        return files

    def _signature(self) -> object:
        return tuple((str(path), stamp_of(path)) for path in self._files([]))


def stamp_of(path: Path) -> object:
    """Return a value that changes with a file; links are followed, and a missing file has a value too."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def reason_of(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


@dataclass(slots=True, eq=False)
class RuleSource:
    """Gives the relister its rules. `run` is its only task.

    It starts from `parsed`, the first reading of `files`. With `strict` any fault ends `run`: InputError.
    `check` finds faults between the rules and other settings; `adopted` is called with each configuration in
    force.
    """

    files: RulesFiles
    parsed: Parsed
    resources: "CatalogueSource"
    relister: Relister
    clock: Clock
    monitoring: Monitoring
    problems: ProblemLog
    strict: bool = field(kw_only=True)
    check: Callable[[RulesConfig], Fault | None] = lambda _: None
    adopted: Callable[[RulesConfig], None] = lambda _: None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    faults: tuple[Fault, ...] = field(init=False)
    """The faults of the configuration in force: the rules left out, and why."""
    refused: tuple[Fault, ...] = field(default=(), init=False)
    """The faults of the files as they are now, if they are not in force."""
    _catalogue: Catalogue | None = field(default=None, init=False)
    _ruleset: compiler.Ruleset = field(default=compiler.EMPTY, init=False)

    def __post_init__(self) -> None:
        self.faults = self.parsed.faults

    async def run(self) -> None:
        """Wait for the cluster's resources, put the rules in force, and apply changes until cancelled."""
        while self._catalogue is None:
            try:
                self._catalogue = await self.resources.refresh()
            except (KubernetesError, NotSyncedError):
                await self.sleep(PERIOD)  # the catalogue reports the failure
        ruleset, faults = await self._compile(self.parsed)
        if self.strict and faults:
            raise InputError(faults)
        await self._adopt(self.parsed.config, ruleset, faults)
        while True:
            await self.sleep(PERIOD)
            with self.problems.defects.contain("unexpected error while reading changed rules"):
                parsed = await asyncio.to_thread(self.files.poll)  # a thousand rules take half a second
                if parsed is not None:
                    await self._reload(parsed)
                else:
                    await self._follow_resources()

    async def _reload(self, parsed: Parsed) -> None:
        """Put changed files in force if they have no fault; else keep the rules and report why."""
        ruleset, compile_faults = await self._compile(parsed, self._ruleset)
        other = self.check(parsed.config)
        faults = in_order((*parsed.fatal, *compile_faults, *((other,) if other else ())))
        if faults:
            self.refused = faults
            self.monitoring.config_reloads.labels(outcome="refused").inc()
            message = "changed configuration refused; the old one stays in use"
            self.problems.report("config-reload", message, "; ".join(map(str, faults)), faults=len(faults))
            return
        self.refused = ()
        self.problems.resolve("config-reload")
        self.monitoring.config_reloads.labels(outcome="applied").inc()
        self.parsed = parsed
        await self._adopt(parsed.config, ruleset, ())

    async def _follow_resources(self) -> None:
        """Compile again after a change of the resources: an override may name a kind installed since."""
        current = self.resources.current()
        if current == self._catalogue:
            return
        self._catalogue = current
        await self._adopt(self.parsed.config, *await self._compile(self.parsed))

    async def _compile(
        self, parsed: Parsed, known: compiler.Ruleset = compiler.EMPTY
    ) -> tuple[compiler.Ruleset, tuple[Fault, ...]]:
        """Return the usable rules of files for the resources, and the faults of the others; in a thread."""
        assert self._catalogue is not None
        ruleset, faults = await asyncio.to_thread(
            compiler.compile_rules, parsed.config, self._catalogue, known
        )
        return ruleset, (*parsed.faults, *faults)

    async def _adopt(self, config: RulesConfig, ruleset: compiler.Ruleset, faults: Sequence[Fault]) -> None:
        self.faults = in_order(faults)
        self._ruleset = ruleset
        text = "; ".join(map(str, self.faults))
        self.problems.follow("config", "rules left out", text, faults=len(faults))
        metrics = self.monitoring
        metrics.config_faults.set(len(faults))
        metrics.config_success.set(self.clock.wall())
        # rules that failed to parse; their faults name them, `rules[3]` or `externalRules[3]`
        skipped = {(fault.source, fault.path.partition("]")[0]) for fault in self.parsed.faults}
        resource = 0 if ruleset.resource is None else 1
        for api, prefix, entries, usable in (
            ("custom", "rules[", len(config.rules), len(ruleset.custom)),
            ("external", "externalRules[", len(config.external_rules), len(ruleset.external)),
            ("resource", "resourceRules", int(config.serves_usages), resource),
        ):
            unread = sum(path.startswith(prefix) for _, path in skipped)
            unread = min(unread, 1) if api == "resource" else unread  # these count as one
            metrics.rules_loaded.labels(api=api).set(usable)
            metrics.rules_skipped.labels(api=api).set(unread + entries - usable)
        counts = facts(
            custom=len(ruleset.custom), external=len(ruleset.external), resource=resource, faults=len(faults)
        )
        _log.info("rules in force", extra=counts)
        await self.relister.adopt(ruleset)
        self.adopted(config)
