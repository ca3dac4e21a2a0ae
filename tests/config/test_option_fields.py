"""Options as dataclasses: what derives from a field that carries its flag."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Self

import pytest

from adapter.config import checks, option_fields
from adapter.config.option_fields import Command, CommandOptions, arguments, option, renamed, replaced
from adapter.config.pflag import Flag, FlagType
from adapter.errors import Fault, InputError
from scripts.generate.docs import render_markdown


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(CommandOptions):
    name_space: str = option(FlagType.TEXT, "shop", "Where it is.", metavar="name", group="Place")


@dataclass(frozen=True, kw_only=True)
class TripOptions(PlaceOptions):
    words: tuple[str, ...] = arguments()
    days: int = option(
        FlagType.INT, "7", "How long it takes.", shorthand="d", check=checks.positive, group="Time"
    )
    pause: float = option(FlagType.DURATION, "1m0s", "Pause.", check=checks.above_zero, group="Time")
    stops: tuple[str, ...] = option(FlagType.LIST, "a,b", "Stops | ports.", name="stop", group="Place")
    secrets: str = option(
        FlagType.TEXT, "", "Key.", check=checks.one_of("x", "y"), secret=True, group="Place"
    )
    output: str = option(FlagType.TEXT, "text", "Format.", shorthand="o", group="Output")

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if "pause" in given and self.days < 2:
            yield Fault("--pause", "", "expected two days")

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:
        yield from super().notices(given)
        if not self.stops:
            yield "it does not stop"

    def resolved(self) -> Self:
        return replace(super().resolved(), words=tuple(sorted(self.words)))


OLD = Flag(name="old", type=FlagType.INT, default="1", help="Was once.", group=option_fields.WITHOUT_EFFECT)
FOREIGN = Flag(name="foreign", type=FlagType.INT, default="1", help="Another verb's.", group="Place")
COMMAND = Command(
    verb="trip",
    options=TripOptions,
    about="Goes away.\n",
    usage="[WORD...] [flags]",
    ignored=(OLD,),
    unread=(FOREIGN,),
    hidden=frozenset({"pause"}),
    deprecated=(renamed("place", "name-space", shorthand="p"), replaced("json", "output", "json")),
)


def refused(*argv: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        COMMAND.parse(argv)
    return [str(fault) for fault in caught.value.faults]


def test_names_and_defaults_are_those_of_the_fields() -> None:
    assert list(COMMAND.table) == [
        *("name-space", "days", "pause", "stop", "secrets", "output"),
        *("foreign", "old", "place", "json"),
    ]
    assert COMMAND.parse([]) == (TripOptions(), ())
    assert TripOptions() == TripOptions(
        name_space="shop", days=7, pause=60.0, stops=("a", "b"), output="text"
    )
    assert "secrets" not in repr(TripOptions(secrets="x"))


def test_a_command_line() -> None:
    options, notices = COMMAND.parse(["z", "-d3", "--stop=c", "a", "--name-space", "n", "--stop=d,e"])
    assert options == TripOptions(words=("a", "z"), days=3, stops=("c", "d", "e"), name_space="n")
    assert notices == ()
    assert COMMAND.parse(["--stop="])[1] == ("it does not stop",)


def test_deprecated_spellings_still_work_and_warn() -> None:
    options, notices = COMMAND.parse(["-p", "n", "--json"])
    assert (options.name_space, options.output) == ("n", "json")
    assert notices == (
        "Flag --place has been deprecated, use --name-space",
        "Flag --json has been deprecated, use -o json",
    )
    assert COMMAND.parse(["--json=false"])[0].output == "text"
    assert refused("--json=x") == ['--json: "x": expected true or false']
    assert refused("--plac=x") == ["--plac: unknown flag; --help lists all"]


def test_options_without_effect_are_named_once() -> None:
    options, notices = COMMAND.parse(["--old=2", "--old=3", "--foreign=x"])
    assert options == TripOptions()
    assert notices == ("flags without effect here: --old",)
    assert refused("--old=x") == ['--old: "x": expected a whole number']


def test_all_faults_are_reported_together() -> None:
    assert refused("--days=-1", "--pause=1s", "--secrets=geheim", "--dayz=1", '--stop="') == [
        "--dayz: unknown flag, did you mean --days?",
        '--stop: "\\"": expected a comma-separated list',
        '--days: "-1": expected a number above 0',
        "--secrets: expected x or y",
        "--pause: expected two days",
    ]
    assert refused("--pause=x", "--days=1") == ['--pause: "x": expected a Go duration such as 30s or 1m30s']


def test_a_verb_without_arguments_refuses_them() -> None:
    command = Command(verb="stay", options=PlaceOptions, about="Stays.\n")
    with pytest.raises(InputError, match='"here": expected flags only'):
        command.parse(["here"])
    assert replace(command, takes_any_argument=True).parse(["here"]) == (PlaceOptions(), ())


def test_the_help_hides_options_without_effect() -> None:
    text = COMMAND.help_for(["-h"])
    assert (
        text
        == """\
Usage: fastpath trip [WORD...] [flags]

Goes away.

Place:
  --name-space name
        Where it is. (default shop)
  --stop strings
        Stops | ports. (default a,b)
  --secrets string
        Key.

Time:
  -d, --days int
        How long it takes. (default 7)

Output:
  -o, --output string
        Format. (default text)

--help-all lists every flag that is accepted.
"""
    )
    everything = COMMAND.help_for(["--help-all"])
    assert everything is not None
    for name in ("pause", "old", "foreign"):
        assert f"  --{name} " in everything
    assert "--place" not in everything
    assert "--help-all lists" not in everything
    assert COMMAND.help_for(["--name-space", "-h"]) is None


def test_the_documentation_has_a_table_for_each_group() -> None:
    page = render_markdown(option_fields.flags_of(TripOptions))
    assert "## Time\n\n| flag | default | meaning |\n| --- | --- | --- |\n| `-d, --days int` | `7` |" in page
    assert "| `--stop strings` | `a,b` | Stops \\| ports. |" in page


def test_types_of_arguments() -> None:
    @dataclass(frozen=True, kw_only=True)
    class ShellOptions(CommandOptions):
        shell: tuple[str, ...] = arguments("bash", "zsh")

    shell = Command(verb="shell", options=ShellOptions, about="", usage="")
    assert shell.arguments == option_fields.Arguments(("bash", "zsh"))
    assert COMMAND.arguments == option_fields.Arguments()
    place = Command(verb="place", options=PlaceOptions, about="", usage="")
    assert place.arguments == option_fields.Arguments()


@pytest.mark.parametrize("name", ["a", "fastpath", "a-1", "x" * 63])
def test_names_that_kubernetes_accepts(name: str) -> None:
    assert checks.label(name) == ""


@pytest.mark.parametrize("name", ["", "-a", "a-", "Fastpath", "a.b", "x" * 64])
def test_other_names(name: str) -> None:
    assert checks.label(name) == "expected a name of lower-case letters, digits and dashes, at most 63"
