"""What several schedulers need: targets, speeds, predictions, fitted step times."""
