"""The command line of `fastpath ui`; completion reads it without importing what asks a cluster."""

from dataclasses import dataclass

from adapter.config.option_fields import Command, option, switch
from adapter.config.pflag import FlagType
from fastpath_tools.doctor.options import ExaminationOptions
from fastpath_tools.live.cluster_options import ScalerAddressOptions


@dataclass(frozen=True, kw_only=True)
class UiOptions(ScalerAddressOptions, ExaminationOptions):
    port: int = option(
        FlagType.INT,
        "0",
        "Port of 127.0.0.1 to serve the pages on; 0 takes a free one.",
        group="Pages",
        check=lambda port: "" if 0 <= port <= 65535 else "expected 0 to 65535",
    )
    no_browser: bool = switch(
        "Print the address only. A browser that is opened has it in its command line, which other users of "
        "this machine can see.",
        group="Pages",
    )


COMMAND = Command(
    verb="ui",
    options=UiOptions,
    usage="[NAMESPACE[/NAME]] [flags]",
    about="""\
Serves pages to a browser on this machine: all autoscalers, the worst first, and of each why its count
is what it is and what comes next. It reads what the kubeconfig allows, as `fastpath doctor` and
`fastpath explain` do, and changes nothing. With a namespace it shows that one's autoscalers only, for
people who may read no other; with a name the browser opens that autoscaler's page.

The pages are served on 127.0.0.1 only, below a random path that this verb prints. Ctrl-C ends it.
""",
)
