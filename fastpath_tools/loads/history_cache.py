"""A folder with the chunks of histories that were read, so that an interrupted read goes on where it ended.

Each chunk is a file. Its name is a digest of the server, the query and the times, and the file repeats them:
a file that does not is not used.
"""

import hashlib
import math
from pathlib import Path

import msgspec

from adapter.errors import Fault, InputError
from adapter.simulate.recorded.history import Grid, Values

FLAG = "--cache"


class _Chunk(msgspec.Struct):
    server: str
    query: str
    grid: tuple[int, int, int]
    values: list[float | None]


_CHUNK = msgspec.json.Decoder(_Chunk)


class ChunkCache:
    """The chunks of one server, whose URL must hold no credentials. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, server: str) -> None:
        """Raise InputError if the folder cannot be made."""
        self._folder = folder
        self._server = server
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unusable(folder, error) from error

    def read(self, query: str, grid: Grid) -> Values | None:
        """Return the values of a chunk, None if it is not there or cannot be used."""
        if self._folder is None:
            return None
        try:
            chunk = _CHUNK.decode(self._file(self._folder, query, grid).read_bytes())
        except (OSError, ValueError):  # what cannot be read is asked for again
            return None
        if (chunk.server, chunk.query, chunk.grid) != (self._server, query, tuple(grid)):
            return None
        if len(chunk.values) != grid.points:
            return None
        times = range(grid.start, grid.end, grid.step)
        return {at: value for at, value in zip(times, chunk.values, strict=True) if value is not None}

    def write(self, query: str, grid: Grid, values: Values) -> None:
        """Keep a chunk whose values will not change. InputError if it cannot be written."""
        if self._folder is None:
            return
        listed = [values.get(at, math.nan) for at in range(grid.start, grid.end, grid.step)]
        chunk = _Chunk(
            self._server,
            query,
            (grid.start, grid.end, grid.step),
            [None if math.isnan(value) else value for value in listed],
        )
        file = self._file(self._folder, query, grid)
        part = file.with_suffix(".part")
        try:
            part.write_bytes(msgspec.json.encode(chunk))
            part.replace(file)
        except OSError as error:
            raise _unusable(self._folder, error) from error

    def _file(self, folder: Path, query: str, grid: Grid) -> Path:
        asked = "\n".join((self._server, query, *map(str, grid)))
        return folder / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.json"


def _unusable(folder: Path, error: OSError) -> InputError:
    return InputError([Fault(FLAG, str(folder), f"expected a folder to write to: {error.strerror}")])
