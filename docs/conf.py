"""The documentation site: `make docs` builds it into build/docs, without network, warnings as errors."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

project = "Ringyard"
author = "The Ringyard developers"
copyright = "The Ringyard developers, Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "generators",
]
exclude_patterns = ["_templates"]
templates_path = ["_templates"]

# pages are GitHub's Markdown, and look the same there
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

# docstrings are plain text with `code` in backticks
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autosummary_generate = True
autosummary_ignore_module_all = False
maximum_signature_line_length = 90
napoleon_use_ivar = True
napoleon_attr_annotations = False  # signatures have them
napoleon_use_rtype = False
# types in docstrings are words (`jobs`, `seconds`) which several classes have as attributes
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = "Ringyard"
html_static_path = ["_static"]
html_css_files = ["ringyard.css"]
html_js_files = ["sortable.js"]
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = "$ "
