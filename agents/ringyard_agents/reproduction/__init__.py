"""Published comparisons, run anew and held against what the papers claim."""
