"""`ringyard calibrate`: fits profiles, networks and interconnects to measurements."""
