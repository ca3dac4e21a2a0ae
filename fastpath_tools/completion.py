"""`fastpath completion SHELL`, and the candidates that its scripts ask for.

The scripts know no verb and no flag. They call `fastpath __complete` with the words before the cursor, as the
scripts of kubectl and helm do with theirs. It prints cobra's format: a candidate on each line, a tab and a
description after it, and at the end a colon and a number that says what else the shell should offer. kubectl
1.26 and later reads the same from the program `kubectl_complete-fastpath` for `kubectl fastpath`.
"""

import asyncio
import contextlib
import enum
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import quote

from adapter.cli import verbs
from adapter.config import pflag
from adapter.config.option_fields import Command, CommandOptions, arguments
from adapter.config.pflag import Flag, FlagType
from adapter.errors import FastpathError, Fault, InputError, KubernetesError


class Directive(enum.IntEnum):
    """What the shell offers beside the candidates; the numbers are cobra's."""

    FILES = 0
    NOTHING = 4
    FOLDERS = 16


class Candidate(NamedTuple):
    word: str
    about: str = ""


class Candidates(NamedTuple):
    """What may stand in place of the last word."""

    candidates: tuple[Candidate, ...] = ()
    directive: Directive = Directive.NOTHING


_SECONDS = 3.0
_MOST = 500
"""For how long autoscalers are listed, and how many of a kind."""

_FILE_METAVARS = frozenset({"file", "path"})
_FOLDER_METAVAR = "folder"
_HELP_FLAGS = (
    Candidate("--help", "list the flags"),
    Candidate("--help-all", "list also those without effect"),
)


def complete(words: Sequence[str]) -> Candidates:
    """Return what may stand in place of the last word of a command line, which is "" where none has begun.

    `words` are those after the program's name. As in cobra's scripts the candidates for `--flag=` are values
    without the flag.
    """
    *before, last = words or [""]
    if before[:1] == ["help"]:
        before = before[1:]
        return _matching(_verbs(), last) if not before else Candidates()
    if not before:
        others = [Candidate("help", "list the flags of a verb"), Candidate("version", "print the version")]
        flags = [Candidate("--help", "list the verbs"), Candidate("--version", "print the version")]
        return _matching(flags if last.startswith("-") else [*_verbs(), *others], last)
    name, *given = before
    verb = verbs.listed().get(name)
    return Candidates() if verb is None else _complete_verb(verb.load_command(), given, last)


def _verbs() -> list[Candidate]:
    return [Candidate(name, verb.about) for name, verb in verbs.listed().items()]


def _complete_verb(command: Command[Any], given: Sequence[str], last: str) -> Candidates:
    table = command.table
    waiting, flags_ended = _read(given, table)
    if waiting is not None:
        return _values(waiting, last)
    if not flags_ended and last.startswith("-"):
        name, equals, text = last.removeprefix("--").partition("=")
        if equals and last.startswith("--"):
            return _values(table[name], text) if name in table else Candidates()
        used = {word.removeprefix("--").partition("=")[0] for word in given if word.startswith("--")}
        return _matching([*_flags(command, used), *_HELP_FLAGS], last)
    taken = command.arguments
    if taken.choices:
        return _matching(map(Candidate, taken.choices), last)
    if taken.are_autoscalers:
        return _matching(map(Candidate, _find_autoscalers(command, given, last)), last)
    return Candidates(directive=Directive.FILES if taken.are_files else Directive.NOTHING)


def _find_autoscalers(command: Command[Any], given: Sequence[str], last: str) -> list[str]:
    """Return the autoscalers of the cluster that the flags name, as NAMESPACE/NAME.

    Those of the namespace that `last` begins with, else of all. A shell shows no errors: nothing is
    offered then.
    """
    namespace, slash, _ = last.partition("/")
    with contextlib.suppress(FastpathError, OSError):  # of these TimeoutError
        options, _ = command.parse([*given, "namespace/name"])
        return asyncio.run(_list_autoscalers(options, namespace if slash else ""))
    return []


async def _list_autoscalers(options: Any, namespace: str) -> list[str]:
    from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION, PLURAL  # noqa: PLC0415 - as below
    from fastpath_tools.live import cluster_options, reading  # noqa: PLC0415 - takes a quarter of a second
    from fastpath_tools.live.api_objects import NamedDocument  # noqa: PLC0415 - as above

    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    kinds = ("autoscaling/v2", "horizontalpodautoscalers"), (API_VERSION, PLURAL)
    names: dict[str, None] = {}
    async with asyncio.timeout(_SECONDS), cluster_options.connect(options) as client:
        for version, plural in kinds:
            path = f"/apis/{version}{within}/{plural}?limit={_MOST}"
            with contextlib.suppress(KubernetesError):  # the cluster may not have the second one
                listed = await reading.fetch_items(client, path, NamedDocument)
                names |= {f"{one.metadata.namespace}/{one.metadata.name}": None for one in listed}
    return sorted(names)


def _read(given: Iterable[str], table: Mapping[str, Flag]) -> tuple[Flag | None, bool]:
    """Return the flag whose value comes next, if any, and whether `--` has ended the flags."""
    waiting: Flag | None = None
    for word in given:
        if waiting is not None:
            waiting = None
        elif word == "--":
            return None, True
        elif word.startswith("--") and "=" not in word:
            waiting = table.get(word[2:])
        elif len(word) == 2 and word.startswith("-"):
            waiting = next((flag for flag in table.values() if flag.shorthand == word[1]), None)
        if waiting is not None and waiting.type is FlagType.BOOL:
            waiting = None
    return waiting, False


def _flags(command: Command[Any], used: set[str]) -> Iterator[Candidate]:
    """Yield the flags that the help lists; one that adds up may be given again."""
    for name, flag in command.shown_flags().items():
        if name not in used or flag.type in pflag.REPEATABLE:
            yield Candidate(f"--{name}", flag.help.partition(". ")[0].partition("; ")[0].removesuffix("."))


def _values(flag: Flag, last: str) -> Candidates:
    if flag.choices:
        return _matching(map(Candidate, flag.choices), last)
    if flag.type is FlagType.BOOL:
        return _matching([Candidate("true"), Candidate("false")], last)
    if flag.metavar == _FOLDER_METAVAR:
        return Candidates(directive=Directive.FOLDERS)
    is_file = flag.metavar in _FILE_METAVARS or flag.type is FlagType.CERTIFICATES
    return Candidates(directive=Directive.FILES if is_file else Directive.NOTHING)


def _matching(candidates: Iterable[Candidate], last: str) -> Candidates:
    return Candidates(tuple(candidate for candidate in candidates if candidate.word.startswith(last)))


def print_candidates(words: Sequence[str]) -> int:
    """Print the candidates for a command line in cobra's format."""
    completion = complete(words)
    lines = [f"{word}\t{about}" if about else word for word, about in completion.candidates]
    sys.stdout.write("\n".join([*lines, f":{completion.directive.value}\n"]))
    return 0


def complete_plugin() -> int:
    """Run as the program `kubectl_complete-fastpath`."""
    return print_candidates(sys.argv[1:])


_SHELLS = ("bash", "zsh", "fish")
_SCRIPTS = resources.files(__package__) / "completions"
"""The scripts. Bash cuts words at = and : too, so its own joins the three pieces of `--output=json` again."""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(CommandOptions):
    shells: tuple[str, ...] = arguments(*_SHELLS)


COMMAND = Command(
    verb="completion",
    options=CompletionOptions,
    usage="bash|zsh|fish",
    about="""\
Prints the script that makes a shell complete verbs, flags and values of fastpath, and the autoscalers of
the cluster. To load it in each new shell:

    echo 'source <(fastpath completion bash)' >>~/.bashrc
    echo 'source <(fastpath completion zsh)' >>~/.zshrc      # after compinit
    fastpath completion fish >~/.config/fish/completions/fastpath.fish

`kubectl fastpath` is completed by kubectl's own script, from kubectl 1.26 on: it finds the program
kubectl_complete-fastpath, which is installed with fastpath.
""",
)


def main(argv: Sequence[str]) -> int:
    """Print the script for a shell. InputError for anything else."""
    from adapter.cli import command_line  # noqa: PLC0415 - candidates do not need it, and are asked for at each tab

    options = command_line.read(COMMAND, argv)
    if options is None:
        return 0
    if len(options.shells) != 1 or options.shells[0] not in _SHELLS:
        given = " ".join(options.shells)
        raise InputError([Fault("SHELL", given, "expected bash, zsh or fish")])
    sys.stdout.write((_SCRIPTS / f"fastpath.{options.shells[0]}").read_text("utf-8"))
    return 0
