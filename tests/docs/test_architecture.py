"""The map of the architecture names every module, and no module that does not exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "sumosurv"


def mapped() -> set[str]:
    """The modules on the map, as paths below the package: rows name a package, then its modules."""
    part = PAGE[PAGE.index("## Map") : PAGE.index("## How a fit")]
    found = set()
    for line in part.splitlines():
        first = re.match(r"\| `(\w+)/` \|", line)
        names = re.findall(r"`(\w+\.py)`", line)
        found |= {f"{first[1]}/{name}" if first else name for name in names}
    return found


def test_every_module_is_on_the_map():
    modules = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if not path.name.startswith("__")}
    assert {name for name in mapped() if not name.endswith("__init__.py")} == modules


def test_walks_name_functions_where_they_are():
    walks = PAGE[PAGE.index("## How a fit") : PAGE.index("## Ideas")]
    named = re.findall(r"`(?:\w+\.)?(\w+)` \(`([\w/]+\.py)`\)", walks)
    assert len(named) > 10
    for name, path in named:
        places = [SOURCE / path, SOURCE / "search" / path]
        text = next(place for place in places if place.is_file()).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {name}\b", text), (name, path)
