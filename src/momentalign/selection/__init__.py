"""Choosing parameters without target labels: searches that train a whole grid as stacks."""
