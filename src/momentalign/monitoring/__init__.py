"""Monitoring: when the data that a deployed model sees leave the target that it was adapted to."""
