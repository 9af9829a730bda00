"""A room imports only rooms above it, so that the package is read from the top and no circle can form."""

import ast
import re
from pathlib import Path

import vjudge

ROOMS = """
lazy records images prompts data models engines judging metrics plots results benchmarks probes
analysis builder training preference review
""".split()
"""From the top of the house to its bottom."""


def imported(file):
    """The rooms that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = f"{getattr(node, 'module', '')}.{alias.name}".lstrip(".")
                yield from re.findall(r"^vjudge\.(\w+)", name)


def test_every_room_imports_only_rooms_above_it():
    house = Path(vjudge.__file__).parent
    wrong = []
    for file in sorted(house.rglob("*.py")):
        room = file.relative_to(house).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in ROOMS, f"{room} has no place in the house: put it into ROOMS"
        below = set(imported(file)) & set(ROOMS[ROOMS.index(room) + 1 :])
        wrong += [f"{file} imports {other}, which stands below it" for other in below]
    assert not wrong, "\n".join(wrong)
