"""`fastpath boost`: what makes the HorizontalPodAutoscalers of a manifest boosted, advised, or plain again.

Reading, writing and exit statuses. What is changed is `cli.boost.patch`'s. Law: nothing is printed unless all is well; files stay as
they are; given its own output it prints just that.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from adapter.boost import model
from adapter.cli import files
from adapter.cli.boost import manifest as boostmanifest
from adapter.cli.boost.patch import Wish
from adapter.errors import Fault, InputError

DESCRIPTION = """\
Print a manifest with its HorizontalPodAutoscalers boosted: each gets an annotation, and one more metric by which it reads the
floor of a raise. An autoscaler without metrics gets the API's default, cpu at 80 %, written out first, and autoscaling/v1 becomes
autoscaling/v2. All else comes out as it is in the file, comments too. Nothing is sent to a cluster, and the file is not changed:

  fastpath boost web.yaml | kubectl apply -f -
"""

EPILOG = """\
A patch is made for the document as it is given. For an object of a cluster:

  kubectl get hpa web -o yaml | fastpath boost -o patch - > web.json
  kubectl patch hpa web --type json --patch-file web.json
"""


def main(arguments: Sequence[str]) -> int:
    """Print the manifest or the patch; 0 when it is done or was so already, 2 when something is not valid: then nothing is printed."""
    parser = build_parser()
    own = parser.parse_args(arguments)
    mode = "" if own.remove else "advise" if own.advise else "boost"
    if own.handshake and mode != "boost":
        flag = "--remove" if own.remove else "--advise"
        raise InputError([Fault("--handshake", own.handshake, f"with {flag} there is no handshake")])
    source = files.read(own.file)
    manifest = boostmanifest.change(
        source.text, source.name, Wish(mode, own.handshake), patches=own.output == "patch"
    )
    for note in manifest.notes:
        print(f"fastpath boost: {note}", file=sys.stderr)
    if own.output == "patch":
        (patch,) = manifest.patches
        print(json.dumps([each.plain() for each in patch], indent=2, ensure_ascii=False))
    else:
        print(manifest.text, end="")
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return what reads a command line."""
    parser = argparse.ArgumentParser(
        "fastpath boost",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="YAML or JSON; -: standard input")
    wishes = parser.add_mutually_exclusive_group()
    wishes.add_argument(
        "--advise",
        action="store_true",
        help="only say what would be done: an annotation, and no further metric",
    )
    wishes.add_argument(
        "--remove",
        action="store_true",
        help="take annotation and metric away; metrics that were written out, and the version, stay: they mean the same",
    )
    parser.add_argument(
        "--handshake",
        choices=(model.OBJECT, model.EXTERNAL),
        default="",
        help="the further metric: external, or one of the autoscaler itself, for clusters whose external metrics are somebody"
        " else's and for names over 63 characters; without it external, and one that is right stays",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("yaml", "patch"),
        default="yaml",
        help="yaml: the whole file; patch: a JSON patch (RFC 6902), for a file with one autoscaler",
    )
    return parser
