"""Settings of the site: ``make docs`` builds it without network, every warning an error."""

from __future__ import annotations

import sys
from pathlib import Path

import sphinx.ext.autosummary

from momentalign.version import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "momentalign"
author = "The momentalign developers"
copyright = "2026, the momentalign developers"  # noqa: A001
version = release = __version__

extensions = [
    "architecture",
    "mathml",
    "myst_parser",
    "numpydoc",
    "readable",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_extensions", "_templates"]
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings hold functions

# Pages
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
highlight_language = "none"  # a block without a language is a command or its output
root_doc = "index"

# Reference
autosummary_generate = True
sphinx.ext.autosummary.WELL_KNOWN_ABBREVIATIONS += ("Eq.", "Eqs.")  # a sentence goes on behind them
autodoc_typehints = "none"  # numpydoc shows what the docstring says
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
add_module_names = False
python_use_unqualified_type_names = True

# Gallery: every example is run while the site is built.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"^(?!plot_)",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "capture_repr": (),  # what a line returns is not what it prints
    "image_srcset": ["2x"],
    "abort_on_example_error": True,
    "min_reported_time": 1,
    "within_subsection_order": "gallery_order.ReadingOrder",
}

# Look
html_theme = "furo"
html_title = "momentalign"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
