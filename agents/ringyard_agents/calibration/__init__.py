"""From measurements to profiles and networks: `ringyard calibrate`."""
