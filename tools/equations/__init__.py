"""Equations of the performance models compared with published measurements, on held-out points."""
