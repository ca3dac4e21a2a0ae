"""scripts/check-prose finds misspellings and the words of its list where they are not excepted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SETTINGS = """\
[tool.check-prose.exempt]
"foreign" = "written elsewhere"
"""
_REFUSED = {
    "whoever": "Whoever asks gets it.",
    "nobody": "for nobody",
    "somebody": 'raise Error("somebody else holds it")',
    "who asks": "Who asks gets it.",
    "who waits": "who\nwaits",
    "he": "what he may not",
    "himself": "the caller himself",
    "anew": "asked anew",
    "mended": "it is mended",
    "befell": "what befell it",
    "is none": "where there is none",
    "for ever": "kept for ever",
    "what waits": "send what waits",
    "by right": "sent by right",
    "no leave": "needs no leave",
    "tells of": "the status tells of it",
    "the hour's": "three are the hour's",
    "law:": "Law: nothing shrinks.",
    "not here:": "Not here: the clock.",
    "the law": "The law of the module.",
}
_ACCEPTED = (
    "if value is None or value is none_of_these",
    "to amend, recommended, the other, this, anewer",
    "people who ask, operators who read this",
    "tell often, told off, by rights, lawful: yes, forever",
    "nobody = 65534  # prose: ok, the name of the user",
)


def _run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(folder / "scripts" / "check-prose"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the script, settings, and one page for each phrase."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "check-prose", folder / "scripts")
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / ".gitignore").write_text(".venv\nscripts\n")
    (folder / "pyproject.toml").write_text(_SETTINGS)
    for name in ("foreign", "refused", "accepted", "spelling"):
        (folder / name).mkdir()
    (folder / "foreign" / "page.md").write_text("anew\n")
    (folder / "spelling" / "code.py").write_text("# Recieve it.\n")  # codespell:ignore
    for number, text in enumerate(_REFUSED.values()):
        (folder / "refused" / f"{number}.py").write_text(f'"""A module."""\n# {text}\n')
    for number, text in enumerate(_ACCEPTED):
        (folder / "accepted" / f"{number}.md").write_text(text)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


def test_words_of_the_list_are_refused(repository: Path) -> None:
    result = _run(repository, "refused")
    assert result.returncode == 1
    for number, words in enumerate(_REFUSED):
        assert f'refused/{number}.py:2: "{words}": say ' in result.stdout


@pytest.mark.parametrize("folder", ["accepted", "foreign"])
def test_other_words_and_exempt_files_are_accepted(repository: Path, folder: str) -> None:
    result = _run(repository, folder)
    assert (result.returncode, result.stdout) == (0, "")


def test_misspellings_are_refused(repository: Path) -> None:
    result = _run(repository, "spelling")
    assert result.returncode == 1
    assert "spelling/code.py:1: Recieve ==> Receive" in result.stdout  # codespell:ignore


def test_words_are_counted_by_folder(repository: Path) -> None:
    result = _run(repository, "--count")
    assert result.returncode == 0
    assert result.stdout.splitlines()[1:] == [f"{len(_REFUSED):5} total"]
