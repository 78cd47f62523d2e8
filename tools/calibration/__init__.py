"""Constants that ship: profiles, networks and interconnects out of published measurements."""
