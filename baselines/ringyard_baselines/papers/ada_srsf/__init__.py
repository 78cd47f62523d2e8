"""Ada-SRSF (arXiv 2002.10105) and its own model of single transfers."""
