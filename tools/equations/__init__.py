"""The equations of the performance models against published measurements, on held-out points."""
