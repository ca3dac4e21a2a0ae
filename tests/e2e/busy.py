"""The program of a pod: it uses as much CPU as it is told, and exposes its process_cpu_seconds_total.

`busy.py ADDRESS PORT` reads cores from stdin, one number a line, and ends with it. It prints a line once it
serves `/metrics`: prometheus_client's process collector, as most Python services have it. What that costs is
part of the cores. The program imports nothing of the project: a measurement starts a hundred of it.
"""

import os
import select
import sys
import time

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

_TICK = 0.05
_LATE = 0.25
"""The seconds that are made up for after the processor was busy with others."""


def main(address: str, port: int) -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    start_http_server(port, address, registry)
    os.write(1, b"ready\n")
    cores = owed = 0.0
    last, used = time.monotonic(), time.process_time()  # noqa: TID251 - a program of its own
    while True:
        pause = max(0.0, last + _TICK - time.monotonic())  # noqa: TID251 - as above
        if select.select([0], [], [], pause)[0]:
            told = os.read(0, 4096).split()
            if not told:
                return
            cores = float(told[-1])
        now, total = time.monotonic(), time.process_time()  # noqa: TID251 - as above
        owed += cores * (now - last) - (total - used)
        owed = min(max(owed, -_TICK), cores * _LATE)
        last, used = now, total
        while time.process_time() - total < owed:
            pass


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
