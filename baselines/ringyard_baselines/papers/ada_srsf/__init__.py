"""Ada-SRSF (arXiv 2002.10105)."""
