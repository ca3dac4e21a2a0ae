"""Options of a verb: a dataclass whose fields carry their flags; parser, help and docs derive from it.

Each option is written once, as a field with `option`:

    @dataclass(frozen=True, kw_only=True)
    class CertsOptions(CommandOptions):
        days: int = option(FlagType.INT, "365", "How many days the certificate is valid.")

The flag's name is the field's with dashes, its default the field's. `Command.parse` turns a command line into
options, and `Command.render_help` makes the help text. Options that several verbs share are base classes.

All faults of a command line are reported together, and no secret appears in a message.
"""

import dataclasses
import functools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from adapter import errors
from adapter.config import checks, pflag
from adapter.config.pflag import CommandLine, Flag, FlagType, FlagUse
from adapter.config.yaml import reader
from adapter.model import timestamps

_FLAG = "flag"
_ARGUMENTS = "arguments"
_WIDTH = 100

WITHOUT_EFFECT = "Accepted without effect"
REMOVED = "Accepted, though prometheus-adapter removed them in v0.11"
"""Groups of flags that are accepted because command lines in use carry them."""


def option(type_: FlagType, default: str, help_: str, *, choices: tuple[str, ...] = (), **flag: Any) -> Any:
    """Return a dataclass field that is set by a flag; `default` is written as on a command line.

    With `choices` the value has to be one of them. The other arguments are those of `Flag`.
    """
    if choices:
        flag["check"] = checks.one_of(*choices)
    entry = Flag(**{"name": "", **flag}, type=type_, default=default, help=help_, choices=choices)
    value = type_.read(default) if default or type_ not in pflag.REPEATABLE else ()
    return field(default=value, repr=not entry.secret, metadata={_FLAG: entry})


text_option = functools.partial(option, FlagType.TEXT, "")
list_option = functools.partial(option, FlagType.ARRAY, "")
switch = functools.partial(option, FlagType.BOOL, "false")


def arguments(*choices: str, are_files: bool = False, are_autoscalers: bool = False) -> Any:
    """Return a dataclass field for the arguments of a command line that are not flags, a tuple of texts.

    Completion offers `choices`, files where the arguments `are_files`, or the autoscalers of the cluster.
    """
    return field(default=(), metadata={_ARGUMENTS: Arguments(choices, are_files, are_autoscalers)})


@dataclass(frozen=True)
class Arguments:
    """What the arguments of a command line that are not flags can be."""

    choices: tuple[str, ...] = ()
    are_files: bool = False
    are_autoscalers: bool = False


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Base of all options: what a class of options checks beyond the single values.

    `given` holds the names of fields.
    """

    def faults(self, given: AbstractSet[str]) -> Iterator[errors.Fault]:  # noqa: ARG002
        """Yield what is wrong with values together."""
        yield from ()

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:  # noqa: ARG002
        """Yield sentences about values that have no effect."""
        yield from ()

    def resolved(self) -> Self:
        """Return the options with the values that follow from others."""
        return self


T = TypeVar("T", bound=CommandOptions)


def flags_of(options: type[CommandOptions]) -> dict[str, Flag]:
    """Return the flags that set the fields of a class of options, by name, in the order of the fields."""
    table = {}
    for entry in dataclasses.fields(options):
        flag: Flag | None = entry.metadata.get(_FLAG)
        if flag is not None:
            name = flag.name or entry.name.replace("_", "-")
            table[name] = dataclasses.replace(flag, name=name, field=entry.name)
    return table


def renamed(old: str, new: str, *, shorthand: str = "") -> Flag:
    """Return a flag with the former name of another one."""
    return Flag(name=old, type=FlagType.TEXT, shorthand=shorthand, instead=new)


def replaced(old: str, new: str, value: str) -> Flag:
    """Return a boolean flag that another flag with a value has replaced."""
    return Flag(name=old, type=FlagType.BOOL, default="false", instead=new, instead_value=value)


@dataclass(frozen=True, kw_only=True)
class Command(Generic[T]):
    """The command line of one verb.

    `usage` names the arguments, `about` begins with a sentence on what the verb does. Flags of `ignored` are
    accepted without effect, which a notice says; flags of `unread` are accepted, and not even their values
    are read. Both, and the flags that `hidden` names, appear in the help only with --help-all.
    """

    verb: str
    options: type[T]
    about: str
    usage: str = "[flags]"
    ignored: tuple[Flag, ...] = ()
    deprecated: tuple[Flag, ...] = ()
    hidden: AbstractSet[str] = frozenset()
    unread: tuple[Flag, ...] = ()
    takes_any_argument: bool = False
    table: Mapping[str, Flag] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        flags = (*flags_of(self.options).values(), *self.unread, *self.ignored, *self.deprecated)
        object.__setattr__(self, "table", {flag.name: flag for flag in flags})

    def parse(self, argv: Sequence[str]) -> tuple[T, tuple[str, ...]]:
        """Return the options of a command line (without program and verb) and sentences to print or log once.

        Raises InputError with every fault.
        """
        line = pflag.scan(argv, self.table)
        notices: list[str] = []
        uses = [self._current(use, notices) for use in line.uses if use.flag not in self.unread]
        values, faults = _read(use for use in uses if use)
        faults = [*line.faults, *faults]
        given = frozenset(values)
        fields = dataclasses.fields(self.options)
        if name := next((entry.name for entry in fields if _ARGUMENTS in entry.metadata), ""):
            values[name] = tuple(line.arguments)
        elif not self.takes_any_argument:
            faults += [
                errors.Fault(reader.shown_text(word), "", "expected flags only") for word in line.arguments
            ]
        options = self.options(**values)
        broken = {fault.path for fault in faults}
        faults += [fault for fault in _check(options, self.table, given) if fault.path not in broken]
        if faults:
            raise errors.InputError(faults)
        notices += [*_without_effect(self.ignored, line), *options.notices(given)]
        return options.resolved(), tuple(notices)

    def _current(self, use: FlagUse, notices: list[str]) -> FlagUse | None:
        """Return a use of the flag that replaces a deprecated one.

        `notices` grows with pflag's own sentence.
        """
        flag, text = use
        if not flag.instead:
            return use
        is_meant = True
        if flag.instead_value:
            try:
                is_meant = flag.type.read(text)
            except ValueError:
                return use  # a fault, as of any other flag
        advice = f"-o {flag.instead_value}" if flag.instead == "output" else f"--{flag.instead}"
        notices.append(f"Flag --{flag.name} has been deprecated, use {advice}")
        current = self.table[flag.instead]
        return FlagUse(current, flag.instead_value or text) if is_meant else None

    @property
    def arguments(self) -> Arguments:
        fields = dataclasses.fields(self.options)
        return next(
            (entry.metadata[_ARGUMENTS] for entry in fields if _ARGUMENTS in entry.metadata), Arguments()
        )

    def shown_flags(self, *, everything: bool = False) -> dict[str, Flag]:
        """Return the flags that the help lists, which has the hidden ones only with `everything`."""
        hidden = self.hidden | {flag.name for flag in (*self.unread, *self.ignored)}
        return {
            name: flag
            for name, flag in self.table.items()
            if not flag.instead and (everything or name not in hidden)
        }

    def help_for(self, argv: Sequence[str], program: str = "fastpath") -> str | None:
        """Return the help text if a command line asks for it with `--help`, `-h` or `--help-all`."""
        line = pflag.scan(argv, self.table)
        if not (line.help or line.help_all):
            return None
        return self.render_help(program, everything=line.help_all)

    def render_help(self, program: str = "fastpath", *, everything: bool = False) -> str:
        """Return the text of `fastpath VERB --help`, or with `everything` of `--help-all`."""
        shown, current = self.shown_flags(everything=everything), self.shown_flags(everything=True)
        lines = [
            f"Usage: {program} {self.verb} {self.usage}",
            "",
            self.about.strip(),
            "",
            *_help_lines(shown),
        ]
        if len(shown) < len(current):
            lines += ["--help-all lists every flag that is accepted.", ""]
        return "\n".join(lines)


def _read(uses: Iterable[FlagUse]) -> tuple[dict[str, Any], list[errors.Fault]]:
    values: dict[str, Any] = {}
    faults = []
    for flag, text in uses:
        try:
            value = flag.type.read(text)
        except ValueError:
            faults.append(_fault(flag, text, f"expected {flag.type.expected}"))
            continue
        if flag.field:
            added = flag.type in pflag.REPEATABLE
            values[flag.field] = values.get(flag.field, ()) + value if added else value
    return values, faults


def _check(
    options: CommandOptions, table: Mapping[str, Flag], given: AbstractSet[str]
) -> Iterator[errors.Fault]:
    for flag in table.values():
        if flag.field in given:
            value = getattr(options, flag.field)
            if expected := flag.check(value):
                yield _fault(flag, written(flag, value), expected)
    yield from options.faults(given)


def _fault(flag: Flag, text: str, expected: str) -> errors.Fault:
    return errors.Fault(f"--{flag.name}", "" if flag.secret else reader.shown_text(text), expected)


def written(flag: Flag, value: object) -> str:
    if flag.type is FlagType.DURATION and isinstance(value, float):
        return timestamps.format_go_duration(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _without_effect(ignored: tuple[Flag, ...], line: CommandLine) -> Iterator[str]:
    sentences = {
        WITHOUT_EFFECT: "flags without effect here",
        REMOVED: "flags that prometheus-adapter removed in v0.11, without effect here",
    }
    for group, sentence in sentences.items():
        names = dict.fromkeys(
            f"--{use.flag.name}" for use in line.uses if use.flag in ignored and use.flag.group == group
        )
        if names:
            yield f"{sentence}: {', '.join(names)}"


def by_group(table: Mapping[str, Flag]) -> dict[str, list[Flag]]:
    groups: dict[str, list[Flag]] = {}
    for flag in table.values():
        groups.setdefault(flag.group or "Flags", []).append(flag)
    return groups


def spelled(flag: Flag) -> str:
    word = flag.metavar or flag.type.word
    short = f"-{flag.shorthand}, " if flag.shorthand else ""
    return f"{short}--{flag.name}" + (f" {word}" if word else "")


def _help_lines(table: Mapping[str, Flag]) -> Iterator[str]:
    for group, flags in by_group(table).items():
        yield f"{group}:"
        for flag in flags:
            text = flag.help + (f" (default {flag.default})" if flag.default not in {"", "false"} else "")
            yield f"  {spelled(flag)}"
            yield from textwrap.wrap(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
        yield ""
