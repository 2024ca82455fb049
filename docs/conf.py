"""Settings of the documentation site: ``make docs`` builds it.

The pages are the Markdown files of this folder, which read well on a code host too. The API reference is made from the
docstrings, the gallery from ``examples/gallery``. Nothing is fetched while the site is built or read.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from sumosurv import __version__

project = "sumosurv"
author = "the sumosurv developers"
version = release = __version__
html_title = f"sumosurv {release}"
repository = "https://github.com/sumosurv/sumosurv"  # also in pyproject.toml and CITATION.cff

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "repository_pages",
]
exclude_patterns = ["_build", "_ext", "_templates"]
templates_path = ["_templates"]
suppress_warnings = [
    "config.cache",
    "ref.python",  # a name in backticks may be a method of several classes
]
default_role = "py:obj"

# Markdown
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# docstrings
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # the docstrings give the types, in words
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "within_subsection_order": "gallery_order.InOrder",
    "remove_config_comments": True,
    "show_signature": False,
}

# theme
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = html_logo = "_static/mark.svg"
html_show_sourcelink = False
html_sidebars: dict[str, Any] = {  # pages without others below them need no list of these
    page: [] for page in ("index", "installation", "quickstart", "theory", "coming_from")
}
html_math_renderer = "mathml"
html_theme_options: dict[str, Any] = {
    "logo": {"text": "sumosurv"},
    "github_url": repository,
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
project_copyright = author


def _skip_member(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Of classes show methods and properties that are defined in this library and meant for users."""
    if what != "class":
        return None
    found = getattr(member, "fget", None) or member
    ours = callable(found) and str(getattr(found, "__module__", "")).startswith("sumosurv")
    return True if not ours or name.endswith("_request") else None


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-skip-member", _skip_member)
