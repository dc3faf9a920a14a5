"""The faults of ``faults.txt``: a file and what is wrong there, then the lines before and after."""

from __future__ import annotations

import dataclasses
import pathlib

FAULTS = pathlib.Path(__file__).with_name("faults.txt")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
      file: the file in the package.
      what: the fault in words.
      old: the text that stands in the file, once.
      new: the text that replaces it.
    """

    file: str
    what: str
    old: str
    new: str

    @classmethod
    def of(cls, block: str) -> Fault:
        """The fault that a block of lines describes."""
        head, *lines = block.splitlines()
        file, _, what = head.partition(": ")
        old, new = ("\n".join(x[2:] for x in lines if x[0] == sign) for sign in "-+")
        return cls(file, what, old, new)

    def is_there(self, package: pathlib.Path) -> bool:
        """Whether the file has the text, once."""
        return (package / self.file).read_text().count(self.old) == 1

    def put_into(self, package: pathlib.Path) -> None:
        """Writes the fault."""
        if not self.is_there(package):
            raise SystemExit(f"{self.file} does not have this text once: {self.old}")
        path = package / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


def faults() -> list[Fault]:
    """All faults."""
    return [Fault.of(block) for block in FAULTS.read_text().strip().split("\n\n")]
