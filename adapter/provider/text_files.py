"""Files and standard input as text, up to a size: what is read is parsed as a whole."""

import errno
import io
import os
from pathlib import Path
from typing import IO

MOST_BYTES = 64 * 1024 * 1024
_MIB = 1024 * 1024


def read_text(path: Path) -> str:
    """Return the text of a file. OSError if it cannot be read or is too large, UnicodeDecodeError.

    Line breaks of other systems are read as ours.
    """
    with path.open("rb") as stream:
        return io.StringIO(read_bytes(stream).decode(), newline=None).read()


def read_bytes(stream: IO[bytes]) -> bytes:
    """Return the rest of a stream. OSError if it is too large."""
    content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has {_size(stream)}more than {MOST_BYTES // _MIB} MiB")
    return content


def _size(stream: IO[bytes]) -> str:
    """Return the size of a file; "" for a pipe, which does not say."""
    try:
        size = os.fstat(stream.fileno()).st_size
    except OSError:  # a stream in memory
        size = 0
    return f"{size / _MIB:.1f} MiB, " if size > MOST_BYTES else ""
