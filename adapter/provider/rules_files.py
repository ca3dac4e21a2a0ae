"""The rules files on disk: read at start, and polled for changes while the process runs.

Files are polled rather than watched: a ConfigMap is swapped by a symbolic link, which a watch on the file
does not see, and a poll costs some microseconds.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from adapter.config import rules_file
from adapter.config.rules_file import Parsed
from adapter.errors import Fault

SUFFIXES = (".yaml", ".yml", ".json")
_FLAG = "--config"


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
                yield str(path), path.read_text(encoding="utf-8")
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
                fatal.append(
                    Fault(self._flag, str(path), f"expected a readable file or folder: {reason_of(error)}")
                )
                continue
            found = sorted(
                entry for entry in entries if entry.suffix in SUFFIXES and not entry.name.startswith(".")
            )
            if not found:
                fatal.append(
                    Fault(
                        self._flag,
                        str(path),
                        f"expected a folder with at least one {', '.join(SUFFIXES)} file",
                    )
                )
            files += found
        return files

    def _signature(self) -> object:
        return tuple((str(path), stamp_of(path)) for path in self._files([]))


EMPTY = "expected rules; the file is empty (to remove all rules write: rules: [])"
"""The fault of an empty file. At start `fastpath serve` takes one as no rules, as prometheus-adapter does."""


def stamp_of(path: Path) -> object:
    """Return a value that changes with a file; links are followed, and a missing file has a value too."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def reason_of(error: Exception) -> str:
    """Return why a file could not be read, as the system says."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
