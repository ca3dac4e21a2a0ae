"""The verbs of the command `fastpath`: the entry points of the group `fastpath.verbs`.

Each package that has verbs registers them in pyproject.toml. So the servers do not import the tools, and
`fastpath --help` lists what is installed. The module of a verb is imported only when the verb runs.
"""

import functools
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any, NamedTuple

from adapter.cli import command_line
from adapter.config.option_fields import Command
from adapter.errors import RunError

GROUP = "fastpath.verbs"

SERVERS = ("serve", "scale")


def missing(packages: Iterable[str]) -> tuple[str, ...]:
    return tuple(package for package in packages if not _is_installed(package))


def require(*packages: str) -> None:
    """Raise RunError if a package of the extra `tools` is not installed."""
    if absent := missing(packages):
        are = "which is" if len(absent) == 1 else "which are"
        install = "pip install '.[tools]' in a clone of the repository"
        raise RunError(f"needs {' and '.join(absent)}, {are} not installed: {install}")


class Verb(NamedTuple):
    """What a verb does, and where the function that does it and its command line are.

    `command_line` is the module with the verb's Command, by default the module of the function. `needs` are
    the packages of the extra `tools` that the verb imports.
    """

    about: str
    module: str
    function: str = "main"
    command_line: str = ""
    command: str = "COMMAND"
    needs: tuple[str, ...] = ()

    def run(self, arguments: list[str]) -> int:
        """Run the verb and return the exit status. RunError if a package is not installed."""
        if (
            missing(self.needs)
            and self.command_line
            and command_line.print_help(self.load_command(), arguments)
        ):
            return 0
        require(*self.needs)
        module = importlib.import_module(self.module)
        status: int = getattr(module, self.function)(arguments)
        return status

    def load_command(self) -> Command[Any]:
        module = importlib.import_module(self.command_line or self.module)
        command: Command[Any] = getattr(module, self.command)
        return command


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # find_spec imports the parent, which `ruamel.yaml` brings along
        return False


SERVE = Verb(
    "serve the metrics APIs; takes every prometheus-adapter flag",
    "adapter.cli.serve",
    command_line="adapter.config.options",
    command="SERVE",
)
SCALE = Verb(
    "run the scaler of `serve --scaler` alone, without the metrics APIs",
    "adapter.cli.serve",
    "scale",
    command_line="adapter.config.options",
    command="SCALE",
)


@functools.cache
def registered() -> Mapping[str, Verb]:
    """Return all verbs by name: `serve` and `scale`, then the others in the order of the alphabet."""
    points = {point.name: point for point in metadata.entry_points(group=GROUP)}
    names = [*SERVERS, *sorted(points.keys() - set(SERVERS))]
    return {name: points[name].load() for name in names}


def listed() -> Mapping[str, Verb]:
    """Return the verbs that help and completion list: those whose packages are installed."""
    return {
        name: verb
        for name, verb in registered().items()
        if not name.startswith("__") and not missing(verb.needs)
    }
