"""The files of a preparation: each is written whole or not at all, and several processes may write the same
one, with the same bytes.
"""

from pathlib import Path

from transformer_mt.files import write_bytes

FACTS_FILE = "facts.json"
"""The manifest; written last, it says that the data are complete."""


class Store:
    """The files in a folder, by their names in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, content)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def read_range(self, name: str, begin: int, end: int) -> bytes:
        """The bytes from the first to before the last."""
        with (self.folder / name).open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return (self.folder / name).stat().st_size

    def exists(self, name: str) -> bool:
        return (self.folder / name).is_file()
