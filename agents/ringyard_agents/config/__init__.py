"""Configs of the commands: composed, checked, and read from files of others without running anything."""
