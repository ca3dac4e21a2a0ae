"""The verb of this package; pyproject.toml registers it."""

from adapter.cli.verbs import Verb

DEMO = Verb(
    "run everything in one process on an embedded cluster, live in the terminal",
    "fastpath_sandbox.demo.command",
    needs=("rich",),
)
