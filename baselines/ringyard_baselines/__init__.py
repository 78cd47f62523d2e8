"""Schedulers of the literature: the baselines every agent is measured against, one paper a file.

Docstrings say where each rule comes from. "FOUND": read in a public text or in code that is named. "From
memory": recalled of the paper, not confirmed by a text. "Assumed": no source says so; a named argument
where it matters. Only what was found may be quoted as the paper's.
"""

from ringyard.renamed import lazy_exports

__all__, __getattr__ = lazy_exports(__name__)
