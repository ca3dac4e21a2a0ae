"""Runs `fastpath` as a process that reports its resources: `python -m benchmarks.observed FILE VERB [FLAGS]`.

On SIGUSR1 it writes to FILE, as JSON, how many tasks its event loop has and how many objects the garbage
collector tracks. `told` counts the reports, so that a reader sees that the file is new. The operating system
has the rest: memory, threads, file descriptors.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from adapter.cli.main import main as run


def main(file: Path, arguments: Sequence[str]) -> int:
    told = 0

    def tell(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        told += 1
        found = {"told": told, "tasks": len(asyncio.all_tasks()), "objects": len(gc.get_objects())}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(found), encoding="ascii")
        os.replace(new, file)  # noqa: PTH105 - whole or not at all

    signal.signal(signal.SIGUSR1, tell)
    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
