"""Files of the repository as pages of the site, and links that leave the folder ``docs``.

Pages link to other files by relative paths, so that the links work on a code host. Here such links are turned to where
the site has the file: a page of its own, a download (records in ``results``), or the repository on the code host.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# pages whose text is a file elsewhere in the repository; in docs/ they hold a link to it
PAGES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "paper": "paper/README.md"}
SITE = {**{file: f"{page}.md" for page, file in PAGES.items()}, "README.md": "index.md"}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def redirect(text: str, home: Path, repository: str) -> str:
    """The text of a file in the folder ``home`` as a page of ``docs``, its relative links turned accordingly."""

    def turned(match: re.Match[str]) -> str:
        before, target, anchor, after = match.group(1), match.group(2), match.group(3) or "", match.group(4)
        if re.match(r"[a-z]+:", target):
            return match.group(0)
        path = Path(os.path.normpath(home / target))
        if not path.exists():
            raise ExtensionError(f"a link to {target}, which does not exist (from {home})")
        inside = path.relative_to(ROOT).as_posix()
        if inside in SITE:
            found = SITE[inside]
        elif path.is_relative_to(DOCS) or (path.is_file() and inside.startswith("results/")):
            found = os.path.relpath(path, DOCS)
        else:
            found = f"{repository}/{'tree' if path.is_dir() else 'blob'}/main/{inside}"
        return f"{before}{found}{anchor}{after}"

    return _LINK.sub(turned, text)


def _read(app: Any, page: str, source: list[str]) -> None:
    if "/" in page:
        return
    file = ROOT / PAGES[page] if page in PAGES else DOCS / f"{page}.md"
    if file.exists():
        if page in PAGES:
            app.env.note_dependency(str(file))
        text = file.read_text(encoding="utf-8") if page in PAGES else source[0]
        source[0] = redirect(text, file.parent, app.config.repository)


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.add_config_value("repository", "", "env")
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
