"""Building blocks that several schedulers use: targets, time slots, predictions, fitted step times."""
