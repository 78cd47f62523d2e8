"""Run folders: name, lock, atomic write, record and resume; sweeps; the index of finished runs."""
