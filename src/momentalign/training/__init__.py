"""Training: stacks of shallow networks, and what is written of them."""
