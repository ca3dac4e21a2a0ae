"""`fastpath` with the credentials of a Pod: `python -m benchmarks.pod KUBECONFIG SERVICE-ACCOUNT VERB ...`.

The server of the file is given in the variables that kubelet sets, and the folder in place of the one that it
mounts.

If Python traces its memory (PYTHONTRACEMALLOC), SIGUSR1 writes the bytes of each file into ``traces`` beside
the token, as JSON.
"""

import json
import os
import signal
import sys
import tracemalloc
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import yaml

from adapter.cli.main import main
from adapter.kubernetes import credentials


def write_traces(folder: Path) -> None:
    """Write how many bytes each source file has allocated and not freed."""
    sizes = {
        each.traceback[0].filename: each.size for each in tracemalloc.take_snapshot().statistics("filename")
    }
    new = folder / "traces.new"
    new.write_text(json.dumps(sizes), encoding="utf-8")
    new.replace(folder / "traces")


if __name__ == "__main__":
    kubeconfig, service_account, *arguments = sys.argv[1:]
    document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
    server = urlsplit(document["clusters"][0]["cluster"]["server"])
    os.environ["KUBERNETES_SERVICE_HOST"] = str(server.hostname)
    os.environ["KUBERNETES_SERVICE_PORT"] = str(server.port)
    credentials.SERVICE_ACCOUNT = Path(service_account)
    if tracemalloc.is_tracing():

        def tell(_number: int, _frame: FrameType | None) -> None:
            write_traces(Path(service_account))

        signal.signal(signal.SIGUSR1, tell)
    sys.exit(main(arguments))
