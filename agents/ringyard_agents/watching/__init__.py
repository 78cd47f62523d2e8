"""`ringyard watch`: a page that plays the schedules of several schedulers side by side in a browser."""
