"""Textbook schedulers: FIFO, SJF, SRTF, SRSF, LAS, EASY backfilling."""
