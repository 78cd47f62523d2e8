"""Published schedulers, one paper a module or package. They do not import each other."""
