"""The pretrained agents: their training, their comparison with published schedulers, their page."""
