"""What the site has beside the pages of this folder: pages made from the registry; how pages are shown."""

from pathlib import Path

from sphinx.application import Sphinx

from . import algorithms, environments, examples, mathml, plain_docstrings, registry, schedulers

__all__ = ["setup"]

#: folders of pages that are written anew at each build; git ignores them
GENERATED = {
    "algorithms": algorithms.pages,
    "environments": environments.pages,
    "schedulers": schedulers.pages,
    "registry": registry.pages,
    "examples": examples.pages,
}


def write_pages(app: Sphinx) -> None:
    """Write the generated pages, those that changed; remove those of what is no longer there."""
    for folder, pages in GENERATED.items():
        home = Path(app.srcdir) / folder
        home.mkdir(exist_ok=True)
        found = pages()
        for name, text in found.items():
            page = home / f"{name}.md"
            if not page.is_file() or page.read_text() != text:
                page.write_text(text)
        for page in home.glob("*.md"):
            if page.stem not in found:
                page.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages, priority=100)  # before autosummary looks for pages
    app.connect("autodoc-process-docstring", plain_docstrings.process)
    app.add_html_math_renderer("mathml", (mathml.inline, None), (mathml.block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
