"""Distances between two samples: one file, one distance, one reference."""
