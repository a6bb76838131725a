"""Optical circuits: which ends are joined, for how long, and how one set of circuits becomes another."""
