"""What completion offers, and what real shells and the real kubectl make of it."""

import asyncio
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from adapter.cli import main, verbs
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools import completion
from fastpath_tools.completion import Directive
from tests.support import doctor, tools
from tests.support.answers import answers

BIN = Path(sys.executable).parent


def offered(*words: str) -> list[str]:
    return [each.word for each in completion.complete(words).candidates]


@pytest.mark.parametrize(("words", "expected"), answers("tools/completion", "candidates"), ids=" ".join)
def test_candidates(words: Sequence[str], expected: Sequence[str]) -> None:
    assert offered(*words) == expected


async def test_autoscalers_of_the_cluster(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        for namespace, name in (("shop", "web"), ("shop", "api"), ("mail", "web")):
            document = doctor.hpa(name, doctor.CPU)
            document["metadata"]["namespace"] = namespace
            cluster.create(document)
        flag = f"--kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}"

        async def ask(*words: str) -> list[str]:
            return await asyncio.to_thread(offered, *words)

        for verb in ("doctor", "explain", "ui"):
            assert await ask(verb, flag, "") == ["mail/web", "shop/api", "shop/web"]
            assert await ask(verb, flag, "shop/") == ["shop/api", "shop/web"]
        assert await ask("doctor", "-o", "json", flag, "shop/w") == ["shop/web"]
        cluster.forbid("list", "horizontalpodautoscalers", "")
        assert await ask("doctor", flag, "") == []
        assert await ask("doctor", flag, "shop/") == ["shop/api", "shop/web"], "one namespace may be allowed"
    assert await ask("doctor", flag, "shop/") == [], "the cluster is gone"
    assert await ask("doctor", "--kubeconfig=none", "") == []


def test_the_first_word_is_a_verb() -> None:
    assert offered("") == [*verbs.listed(), "help", "version"]
    assert offered() == offered("")


def test_completing_imports_no_client() -> None:
    """Each tab waits for these imports: with the HTTP client they take half a second."""
    light = set(verbs.listed()) - {"explain", "preflight"}  # their verbs and flags are in one module
    code = (
        "import sys; from fastpath_tools import completion\n"
        f"for verb in {sorted(light)}: completion.complete([verb, '--'])\n"
        "print('aiohttp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("verb", verbs.listed())
def test_every_flag_that_the_help_lists_is_offered(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([verb, "--help"]) == 0
    listed = re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
    assert sorted(offered(verb, "-")) == sorted([*listed, "--help", "--help-all"])


@pytest.mark.parametrize(("words", "directive"), answers("tools/completion", "directives"))
def test_what_the_shell_offers_itself(words: Sequence[str], directive: str) -> None:
    assert completion.complete(words).directive is Directive[directive]


def test_the_format_is_that_of_cobra(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["__complete", "expl"]) == 0
    about = verbs.listed()["explain"].about
    assert capsys.readouterr().out == f"explain\t{about}\n:4\n"


@pytest.mark.parametrize("arguments", [[], ["tcsh"], ["bash", "zsh"]])
def test_another_shell_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", *arguments]) == 2
    given = f": {' '.join(arguments)}" if arguments else ""
    expected = f"fastpath completion: SHELL{given}: expected bash, zsh or fish\n"
    assert capsys.readouterr().err == expected


# In real shells. The installed `fastpath` answers.


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with two files and a folder, in which the shells run."""
    folder = tmp_path / "home"
    (folder / "rules.d").mkdir(parents=True)
    (folder / "rules.yaml").write_text("")
    (folder / "my rules.yaml").write_text("")
    return folder


def environment(home: Path) -> Mapping[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


_BASH = r"""
source <(fastpath completion bash)
for line in "$@"; do
    read -r -a COMP_WORDS <<<"$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _fastpath
    echo "${COMPREPLY[@]}"
done
"""


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_bash(home: Path) -> None:
    """The words are cut as bash cuts them, at = and : too."""
    cases = {
        "fastpath che": "check",
        "fastpath explain --output = j": "json",
        "fastpath explain --server = http : //a --outp": "--output",
        "fastpath certs --out-dir r": "rules.d",
        "fastpath explain r": "",
    }
    done = subprocess.run(
        [tools.require("bash", "bash"), "--norc", "-uc", _BASH, "bash", *cases],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.splitlines(), done.stderr) == (list(cases.values()), "")


_FISH = """\
fastpath completion fish | source
for line in $argv
    echo "> $line"
    complete -C $line
end
"""


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_fish(home: Path) -> None:
    cases = {
        "fastpath che": {"check"},
        "fastpath explain --output=": {"--output=text", "--output=json"},
        "fastpath certs --out-dir r": {"rules.d/"},
        "fastpath explain --kubeconfig=rules.y": {"--kubeconfig=rules.yaml"},
        "fastpath check my\\ ru": {"my rules.yaml"},
        "fastpath explain r": set(),
    }
    done = subprocess.run(
        [tools.require("fish", "fish"), "--no-config", "-c", _FISH, *cases],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("> "):
            words = answers.setdefault(line[2:], set())
        else:
            words.add(line.partition("\t")[0])
    assert (answers, done.stderr) == (cases, "")


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_tab_at_a_terminal(shell: str, home: Path) -> None:
    """Each line is typed and completed with a tab; it is not run."""
    options = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[shell]
    setup = {"bash": "", "zsh": "autoload -U compinit; compinit -u -D; "}[shell]
    terminal = Terminal([tools.require(shell, shell), *options], home)
    try:
        terminal.send(f"{setup}source <(fastpath completion {shell}); PS1=; echo re''ady\n")
        terminal.wait_for("ready")
        for line, expected in {
            "fastpath explain --output=j": "fastpath explain --output=json",
            "fastpath certs --out-dir r": "fastpath certs --out-dir rules.d/",
            "fastpath explain --kubeconfig=rules.y": "fastpath explain --kubeconfig=rules.yaml",
        }.items():
            terminal.send(f"{line}\t")
            terminal.wait_for(expected)
            terminal.send("\x15")  # Control-U clears the line
    finally:
        terminal.close()


class Terminal:
    """An interactive program at a terminal of its own."""

    def __init__(self, command: Sequence[str], home: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=home,
            env=environment(home),
            start_new_session=True,
        )
        os.close(theirs)
        self._shown = ""

    def send(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until the text is shown; fail with what was shown after half a minute."""
        deadline = time.monotonic() + 30  # noqa: TID251 - waits for a real program
        while text not in self._shown and time.monotonic() < deadline:  # noqa: TID251 - see above
            if select.select([self._ours], [], [], 0.5)[0]:
                self._shown += os.read(self._ours, 4096).decode(errors="replace")
        assert text in self._shown, self._shown

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


# As a plugin of kubectl.


def kubectl(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [tools.require("kubectl", "kubernetes-client"), *arguments],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_kubectl_runs_it_as_a_plugin(home: Path) -> None:
    done = kubectl(home, "fastpath", "certs", "--dys", "3")
    expected = "kubectl fastpath certs: --dys: unknown flag, did you mean --days?\n"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(expected)
    done = kubectl(home, "fastpath", "explain", "--help")
    assert done.stdout.startswith("Usage: kubectl fastpath explain NAMESPACE/NAME [flags]\n")
    done = kubectl(home, "fastpath", "--help")
    assert done.stdout.startswith("Usage: kubectl fastpath VERB ")
    assert kubectl(home, "fastpath", "serv").stderr == (
        "kubectl fastpath: serv: no such verb: did you mean serve?\n"
    )


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_a_plugin_uses_the_kubeconfig_that_kubectl_uses(home: Path) -> None:
    file = home / "kubeconfig"
    file.write_text("apiVersion: v1\nkind: Config\ncurrent-context: absent\n")
    done = subprocess.run(
        [tools.require("kubectl", "kubernetes-client"), "fastpath", "explain", "shop/web"],
        env={**environment(home), "KUBECONFIG": str(file)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("kubectl fastpath explain: ")
    assert str(file) in done.stderr
    assert "absent" in done.stderr


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_kubectl_completes_the_plugin(home: Path) -> None:
    for words, expected in (
        (["che"], ["check"]),
        (["explain", "--output", ""], ["text", "json"]),
        (["explain", "--output="], ["text", "json"]),
    ):
        *candidates, directive = kubectl(home, "__complete", "fastpath", *words).stdout.splitlines()
        assert [each.partition("\t")[0] for each in candidates] == expected
        assert directive == ":4"


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_kubectl_lists_the_plugin_without_a_warning(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("kubectl-fastpath", "kubectl_complete-fastpath"):
        (folder / name).symlink_to(BIN / name)
    program = shutil.which("kubectl") or tools.require("kubectl", "kubernetes-client")
    done = subprocess.run(
        [program, "plugin", "list"],
        env={**environment(home), "PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert str(folder / "kubectl-fastpath") in done.stdout
