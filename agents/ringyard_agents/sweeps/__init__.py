"""Sweeps: jobs that any of Hydra's launchers runs, what each leaves behind, and one table across them."""
