"""`fastpath boost`: what makes the HorizontalPodAutoscalers of a manifest boosted, advised, or plain again.

`cli.boost.patch` makes the change. Nothing is printed unless the whole file is valid, and the file itself
stays as it is. Given its own output, the verb prints it unchanged.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from adapter.cli import command_line
from adapter.cli.boost import manifest as boostmanifest
from adapter.cli.boost.patch import Wish
from adapter.config import checks
from adapter.config.option_fields import Command, CommandOptions, arguments, option
from adapter.config.pflag import FlagType
from adapter.config.yaml import reader
from adapter.errors import Fault
from adapter.model.autoscaling import boost as model


@dataclass(frozen=True, kw_only=True)
class BoostOptions(CommandOptions):
    """What the HorizontalPodAutoscalers of a manifest become."""

    files: tuple[str, ...] = arguments()
    advise: bool = option(
        FlagType.BOOL,
        "false",
        "Only report what Fastpath would do: adds an annotation, and no further metric.",
    )
    remove: bool = option(
        FlagType.BOOL,
        "false",
        "Remove annotation and metric. Metrics that were written out stay, and so does the version: "
        "they mean the same.",
    )
    handshake: str = option(
        FlagType.TEXT,
        "",
        f"The further metric: {model.EXTERNAL}, or {model.OBJECT} for one of the autoscaler itself, for "
        "clusters whose "
        "external metrics another server has and for names over 63 characters. Without it "
        f"{model.EXTERNAL}; a further "
        "metric that is already right stays.",
        metavar="type",
        check=checks.one_of(model.OBJECT, model.EXTERNAL),
    )
    output: str = command_line.output(
        "yaml",
        "patch",
        help_="yaml: the whole file; patch: a JSON patch (RFC 6902), for a file with one autoscaler.",
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        """Yield what is wrong with values together."""
        yield from super().faults(given)
        if len(self.files) > 1:
            yield Fault(
                "FILE", reader.shown_text(" ".join(self.files)), "expected one file, or - for standard input"
            )
        if self.advise and self.remove:
            yield Fault("--remove", "", "expected not to be given with --advise")
        if self.handshake and (self.remove or self.advise):
            flag = "--remove" if self.remove else "--advise"
            yield Fault("--handshake", self.handshake, f"with {flag} there is no handshake")


COMMAND = Command(
    verb="boost",
    options=BoostOptions,
    usage="[FILE] [flags]",
    about="""\
Prints a manifest with its HorizontalPodAutoscalers boosted: each gets an annotation, and one more
metric by which it reads the floor of a raise. An autoscaler without metrics gets the API's default,
cpu at 80 %, written out first, and autoscaling/v1 becomes autoscaling/v2. All else stays, comments
too. Nothing is sent to a cluster, and the file is not changed. FILE is YAML or JSON; - or no FILE:
standard input.

    fastpath boost web.yaml | kubectl apply -f -

A patch is made for the document as it is given. For an object of a cluster:

    kubectl get hpa web -o yaml | fastpath boost -o patch - > web.json
    kubectl patch hpa web --type json --patch-file web.json
""",
)


def main(argv: Sequence[str]) -> int:
    """Print the manifest or the patch.

    0 when it is done or was so already, 2 when something is not valid: then nothing is printed.
    """
    options = command_line.read(COMMAND, argv)
    if options is None:
        return 0
    mode = "" if options.remove else "advise" if options.advise else "boost"
    (file,) = command_line.given_files("boost", options.files)
    source = command_line.read_source(file)
    manifest = boostmanifest.change(
        source.text, source.name, Wish(mode, options.handshake), patches=options.output == "patch"
    )
    for note in manifest.notes:
        print(f"fastpath boost: {note}", file=sys.stderr)
    if options.output == "patch":
        (patch,) = manifest.patches
        print(json.dumps([each.plain() for each in patch], indent=2, ensure_ascii=False))
    else:
        print(manifest.text, end="")
    return 0
