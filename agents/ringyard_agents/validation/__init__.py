"""The performance models held against measurements: `ringyard validate`."""
