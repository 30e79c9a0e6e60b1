"""Moments of a sample, at once or in parts that are merged."""
