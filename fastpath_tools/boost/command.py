"""`fastpath boost`: prints a manifest with its HorizontalPodAutoscalers boosted, advised, or plain again.

`boost_patch` plans the operations for one autoscaler, and `boost_round_trip` applies them to the text of its
document. Nothing is printed unless the whole file is valid. A document without a change is printed byte for
byte, so the verb prints its own output unchanged.
"""

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from adapter.cli import command_line
from adapter.config.option_fields import Command, CommandOptions, arguments, option, switch, text_option
from adapter.config.pflag import FlagType
from adapter.config.yaml import reader
from adapter.errors import Fault, InputError
from adapter.model.autoscaling.boost import EXTERNAL, MODE_ANNOTATION, OBJECT
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from fastpath_tools import manifests, yaml_documents
from fastpath_tools.boost import boost_patch, boost_round_trip
from fastpath_tools.boost.boost_patch import FAST, KEEP, REMOVE, PatchOperation, Wish
from fastpath_tools.yaml_documents import YAMLDocument


@dataclass(frozen=True, kw_only=True)
class BoostOptions(CommandOptions):
    files: tuple[str, ...] = arguments(are_files=True)
    advise: bool = switch("Only report what Fastpath would do: adds an annotation, and no further metric.")
    remove: bool = switch(
        "Remove the annotation and the metric. A default metric that was written out stays, and so do "
        "autoscaling/v2, which means the same as before, and the policies of --scale-up."
    )
    handshake: str = text_option(
        f"Type of the added metric: {EXTERNAL}, or {OBJECT}, a metric of the autoscaler itself, for clusters "
        "where another server has the external metrics and for names over 63 characters. Without it "
        f"{EXTERNAL}; a metric that was added before stays as it is.",
        metavar="type",
        choices=(OBJECT, EXTERNAL),
    )
    scale_up: str = option(
        FlagType.TEXT,
        KEEP,
        "keep the policies of scale-ups as they are, or write fast ones, which allow ten times the replicas "
        "in 15 s. The API's default allows twice as many, or 4 more.",
        metavar="policies",
        choices=(KEEP, FAST),
    )
    output: str = command_line.output(
        "yaml",
        "patch",
        help_="yaml: the whole file; patch: a JSON patch (RFC 6902), for a file with one autoscaler.",
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if len(self.files) > 1:
            expected = "expected one file, or - for standard input"
            yield Fault("FILE", reader.shown_text(" ".join(self.files)), expected)
        if self.advise and self.remove:
            yield Fault("--remove", "", "cannot be combined with --advise")
        flag = "--remove" if self.remove else "--advise" if self.advise else ""
        for name, value in (("--handshake", self.handshake), ("--scale-up", self.scale_up)):
            if flag and value not in {"", KEEP}:
                yield Fault(name, value, f"cannot be combined with {flag}")


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


@command_line.verb(COMMAND)
def main(options: BoostOptions) -> int:
    """Print the manifest or the patch; InputError if any part of the file is not valid."""
    mode = "" if options.remove else "advise" if options.advise else "boost"
    (file,) = command_line.given_files("boost", options.files)
    source = command_line.read_source(file)
    wish = Wish(mode, options.handshake, options.scale_up)
    manifest = change(source.text, source.name, wish, patches=options.output == "patch")
    for note in manifest.notes:
        command_line.tell("boost", note)
    if mode == "boost" and any(manifest.patches):
        command_line.tell("boost", _NEEDS)
    if options.output == "patch":
        (patch,) = manifest.patches
        document = [operation.plain() for operation in patch]
        command_line.show(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        command_line.show_file(manifest.text)
    return 0


_REWRITTEN = (
    "its document is rewritten as a whole, without comments: the change reaches into an alias or a merge key"
)
_NEEDS = (
    "a boosted HPA needs components/scaler, and the floors that it makes Fastpath serve: without them it "
    "does not scale down; fastpath doctor says whether they are there (docs/guides/boost.md)"
)
_NO_ANNOTATIONS = (
    "the document has no annotations, so its patch would replace those of the object in the cluster: make "
    "the patch from the output of `kubectl get hpa NAME -o yaml`"
)


class Manifest(NamedTuple):
    """A changed text, and the operations of each autoscaler in it. Each note begins with its place."""

    text: str
    patches: tuple[tuple[PatchOperation, ...], ...]
    notes: tuple[str, ...]


class _Planned(NamedTuple):
    """One autoscaler: its path in its document, what it scales, and its operations relative to the path.

    `label` begins the notes on it.
    """

    place: str
    line: int
    label: str
    name: str
    target: tuple[str, str, str, str]
    operations: tuple[PatchOperation, ...]
    notes: tuple[str, ...]

    def steps_in_document(self) -> Iterator[PatchOperation]:
        """Yield the operations as those on the document, which may be a List."""
        index = self.place.removeprefix("items[").removesuffix("]")
        above = ("items", index) if index else ()
        return (step._replace(path=(*above, *step.path)) for step in self.operations)


def change(text: str, source: str, wish: Wish, *, patches: bool = False) -> Manifest:
    """Return a text whose autoscalers are what is wished for.

    With `patches` the text must have exactly one autoscaler, and notes are about its patch. InputError with
    all faults.
    """
    faults: list[Fault] = []
    pieces: list[str] = []
    notes: list[str] = []
    every: list[_Planned] = []
    yaml_documents.refuse_large(text, source)
    for lines, part in yaml_documents.split_documents(text):
        document = yaml_documents.read_part(lines, part, source)
        if isinstance(document, InputError):
            faults += document.faults
        if not isinstance(document, YAMLDocument):
            pieces.append(part)
            continue
        planned = list(_plan(document, source, wish, faults))
        steps = [step for autoscaler in planned for step in autoscaler.steps_in_document()]
        # one edit for all autoscalers of a List: a second one would read what the first has written
        edited = boost_round_trip.edit(part, document, steps)
        pieces.append(edited.text)
        for autoscaler in planned:
            messages = list(autoscaler.notes)
            if not patches and edited.is_rewritten:
                messages.append(_REWRITTEN)
            if patches and any(
                step.path == ("metadata", "annotations") and step.value for step in autoscaler.operations
            ):
                messages.append(_NO_ANNOTATIONS)
            notes += (f"{autoscaler.label}: {note}" for note in messages)
        every += planned
    if not every and not faults:
        faults.append(Fault("", "", f"expected a {HPA_KIND}; the file has no such object", source))
    if patches and len(every) > 1 and not faults:
        expected = f"expected one {HPA_KIND}: a patch is for one object"
        faults.append(Fault("", "", expected, source, every[1].line))
    if faults:
        raise InputError(faults)
    operations = (tuple(map(_for_an_object, autoscaler.operations)) for autoscaler in every)
    return Manifest("".join(pieces), tuple(operations), (*notes, *_rivals(every)))


def _rivals(planned: Sequence[_Planned]) -> Iterator[str]:
    """Yield a note on each autoscaler whose target another one of the file scales too."""
    for own in planned:
        others = [other.name for other in planned if other is not own and other.target == own.target]
        if others:
            target = " ".join(own.target[2:])
            rivals = f"{target} is also scaled by {', '.join(others)}"
            yield f"{own.label}: {rivals}: keep only one autoscaler for {target}"


def _plan(document: YAMLDocument, source: str, wish: Wish, faults: list[Fault]) -> Iterator[_Planned]:
    """Yield the autoscalers of a document, also those in a List; faults go to `faults`."""
    for place, tree in manifests.documents_in(document.value):
        if not boost_patch.is_autoscaler(tree):
            continue
        assert isinstance(tree, dict)
        try:
            planned = boost_patch.plan(tree, wish)
        except InputError as error:
            faults += (yaml_documents.located(fault, place, document, source) for fault in error.faults)
        else:
            meta, reference = tree["metadata"], tree["spec"]["scaleTargetRef"]
            group = reference.get("apiVersion", "").rpartition("/")[0]
            target = (meta.get("namespace", ""), group, reference["kind"], reference["name"])
            name, line = meta["name"], document.line_of(place)
            label = f"{source}:{line}: {HPA_KIND} {name}"
            yield _Planned(place.rstrip("."), line, label, name, target, planned.operations, planned.notes)


def _for_an_object(operation: PatchOperation) -> PatchOperation:
    """Return an operation as one on the object of a cluster, which may have further annotations."""
    is_all = operation.op == REMOVE and operation.path == ("metadata", "annotations")
    return operation._replace(path=(*operation.path, MODE_ANNOTATION)) if is_all else operation
