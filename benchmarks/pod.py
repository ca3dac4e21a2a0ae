"""`fastpath` with the credentials of a Pod: `python -m benchmarks.pod KUBECONFIG SERVICE-ACCOUNT VERB ...`.

The server of the file is given in the variables that kubelet sets, and the folder in place of the one that it
mounts.
"""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from adapter.cli.main import main
from adapter.kubernetes import credentials

if __name__ == "__main__":
    kubeconfig, service_account, *arguments = sys.argv[1:]
    document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
    server = urlsplit(document["clusters"][0]["cluster"]["server"])
    os.environ["KUBERNETES_SERVICE_HOST"] = str(server.hostname)
    os.environ["KUBERNETES_SERVICE_PORT"] = str(server.port)
    credentials.SERVICE_ACCOUNT = Path(service_account)
    sys.exit(main(arguments))
