"""`fastpath` as a process that tells its tasks: `python -m benchmarks.observed FILE VERB [FLAGS]`.

On SIGUSR1 it writes into FILE how many tasks its event loop has. The operating system has the rest: memory,
threads, file descriptors.
"""

import asyncio
import signal
import sys
from pathlib import Path
from types import FrameType

from adapter.cli.main import main

if __name__ == "__main__":
    file = Path(sys.argv[1])

    def tell(_number: int, _frame: FrameType | None) -> None:
        new = file.with_suffix(".new")
        new.write_text(str(len(asyncio.all_tasks())), encoding="ascii")
        new.replace(file)

    signal.signal(signal.SIGUSR1, tell)
    sys.exit(main(sys.argv[2:]))
