"""The rules files on disk: read at start, looked at again while the process runs.

Parsing is `config`'s, what becomes of a change `provider.rules`'. Files are looked at rather than watched: a ConfigMap is swapped by
a symbolic link, which a watch on the file does not see, and a look costs some microseconds.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from adapter.config import rules_file
from adapter.config.rules_file import Parsed
from adapter.errors import Fault

SUFFIXES = (".yaml", ".yml", ".json")
_FLAG = "--config"


class RulesFiles:
    """The files that a command line names: each a file, or a folder of .yaml, .yml and .json files in the order of their names."""

    def __init__(self, paths: Sequence[str], *, flag: str = _FLAG) -> None:
        """`flag` is what faults say that the paths come from."""
        self._paths = tuple(map(Path, paths))
        self._flag = flag
        self._seen: object = None

    def read(self) -> Parsed:
        """Return what all files say together; a file that cannot be read is a fatal fault of the whole."""
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
        """Yield name and text of each file; `fatal` grows with those that cannot be read."""
        for path in self._files(fatal):
            try:
                yield str(path), path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                fatal.append(Fault(self._flag, str(path), f"expected a readable file: {reason_of(error)}"))

    def poll(self) -> Parsed | None:
        """Return what the files say when one is another than when last read, else None.

        A file that has become empty is a fatal fault: half written, more likely than meant. `rules: []` says that none are wanted.
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
"""What is wrong with an empty file. At the start `fastpath serve` takes one as a configuration without rules, as prometheus-adapter does."""


def stamp_of(path: Path) -> object:
    """Return what differs when a file does; links are followed, a missing file is a state like any other."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def reason_of(error: Exception) -> str:
    """Return why a file could not be read, in the system's words."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
