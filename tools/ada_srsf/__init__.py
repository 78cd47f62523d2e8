"""Ada-SRSF's own model of single transfers (arXiv 2002.10105), which its page of docs/reproduction uses."""
