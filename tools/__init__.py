"""Code that only maintainers run, from the root of a checkout: `python -m tools.NAME`."""
