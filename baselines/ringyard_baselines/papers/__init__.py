"""Published schedulers, one paper a file or folder; they do not know one another."""
