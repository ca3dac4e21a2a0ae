"""Files as kubelet mounts them: a ConfigMap or a Secret whose content changes all at once."""

from pathlib import Path


class Mount:
    """A folder whose files are links into another, to which one link leads; a change swaps that link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._swaps = 0
        folder.mkdir()

    def put(self, **files: bytes) -> None:
        """Replace all content at once; a file's name is given with an underscore for its dot."""
        self._swaps += 1
        fresh = self.folder / f"..{self._swaps}"
        fresh.mkdir()
        for name, content in files.items():
            (fresh / name.replace("_", ".")).write_bytes(content)
        draft = self.folder / "..data_tmp"
        draft.symlink_to(fresh.name)
        draft.replace(self.folder / "..data")
        for name in files:
            link = self.folder / name.replace("_", ".")
            if not link.is_symlink():
                link.symlink_to(f"..data/{link.name}")

    def drop(self) -> None:
        """Take the content away; the links stay and lead nowhere."""
        (self.folder / "..data").unlink()
