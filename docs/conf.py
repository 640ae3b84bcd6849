"""How the site is built: `make docs`. Its pages load nothing from a network."""

import os
import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "extensions"), str(ROOT)]
# Tutorials start programs and kernels of their own: all of them find the package and its modules.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# What one page has compiled serves the next ones.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp())
os.environ |= {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# Their tables are as wide as a column of text, and no browser is asked whether it knows a bar.
os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
# A library offers widgets for bars that no page shows.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"

import sampler  # noqa: E402

project = "attention-posterior"
author = "the attention-posterior contributors"
copyright = author
version = release = sampler.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "mathml",
    "docstrings",
    "recipe_reference",
    "notation",
    "commands",
]
exclude_patterns = ["_build", "extensions"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}
nitpicky = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

nb_execution_mode = "force"
# PyTorch is an extra; without it the page is shown without results.
nb_execution_excludepatterns = [] if find_spec("torch") else ["tutorials/own_transformer.md"]
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
# Otherwise a page with a widget would load its program from a network.
nb_ipywidgets_js: dict = {}

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = False
add_module_names = False
maximum_signature_line_length = 90
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = "attention-posterior"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False


def spread_tutorials(app, environment, docnames: list[str]) -> None:
    """Half of the tutorials, which are executed, to each of two processes that read pages."""
    tutorials = [name for name in docnames if name.startswith("tutorials/")]
    others = [name for name in docnames if name not in tutorials]
    half = len(others) // 2
    docnames[:] = [*tutorials[::2], *others[:half], *tutorials[1::2], *others[half:]]


def make_pages_of_studies(app) -> None:
    """Write a page for every study and for the references, which includes its README."""
    shutil.rmtree(HERE / "studies", ignore_errors=True)
    (HERE / "studies").mkdir()
    for readme in (*ROOT.glob("runs/studies/*/README.md"), ROOT / "runs/references/README.md"):
        folder = readme.parent.relative_to(ROOT)
        to_docs = "../" * len(folder.parts)
        (HERE / "studies" / f"{folder.name}.md").write_text(
            f"```{{include}} ../../{folder}/README.md\n"
            f":relative-docs: {to_docs}docs\n:relative-images:\n```\n",
            encoding="utf-8",
        )


def link_studies(app, docname: str, source: list[str]) -> None:
    """Links to the README of a study lead to its page."""
    of_studies = r"\]\([./]*runs/(?:studies/)?(\w+)/README\.md"
    source[0] = re.sub(of_studies, r"](/studies/\1.md", source[0])


def setup(app) -> dict:
    app.connect("builder-inited", make_pages_of_studies)
    app.connect("source-read", link_studies)
    app.connect("env-before-read-docs", spread_tutorials)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
