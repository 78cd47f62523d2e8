"""Run folders and sweeps: names, locks, atomic files, records, resuming, and the index of finished runs."""
