"""Configs of the commands: composition from yamls, types of settings, error messages, and safe loading."""
