"""The slow twin of the engine in plain Python: tests hold the compiled one against it."""
