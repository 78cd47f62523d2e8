"""Published comparisons, run again and compared with the papers' claims."""
