"""`fastpath simulate --replay FILE`: the decisions of a live scaler, made again from its journal."""

from adapter.cli import command_line
from adapter.model import visible
from adapter.rules.wording import counted
from fastpath_tools.simulate.recorded_replay import Replayed, replay


def run(file: str, output: str) -> int:
    """Print what a replay of an export comes to; 1 if a decision comes out differently. InputError."""
    source = command_line.read_source(file)
    done = replay(source.text, source.name)
    if output == "json":
        command_line.show(command_line.to_json(done.document()))
    else:
        command_line.show(visible.join(render(done)))
    return 1 if done.differences else 0


def render(done: Replayed) -> list[str]:
    """Return the result as lines for people."""
    decisions = counted(done.decisions, "decision", "decisions")
    lines = [f"{decisions} made again: {done.differences or 'none'} different"]
    if done.without_inputs:
        what = counted(done.without_inputs, "entry has", "entries have")
        lines.append(f"{what} no record: the decision looked at nothing")
    if (first := done.first) is not None:
        lines += ["", f"first difference, {first}"]
        if first.recorded or first.now:
            lines.append(f"  recorded: {first.recorded or 'no such step'}")
            lines.append(f"  now:      {first.now or 'no such step'}")
    return lines
