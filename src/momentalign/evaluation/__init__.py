"""How good a model is on the target, what shifted, and what theory says of it."""
