"""Published measurements as tidy tables: a yaml in `tools/conf/measured` and a reader for each."""
