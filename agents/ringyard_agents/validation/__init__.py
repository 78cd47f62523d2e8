"""`ringyard validate`: errors of the shipped performance models on measurements."""
