"""Shipped constants: profiles, networks and interconnects fitted to published measurements."""
