"""What a simulation holds: records, the arrays of them, and what follows from one record."""
