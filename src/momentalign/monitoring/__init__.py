"""Monitoring: when new data leave the target that a model was adapted to."""
