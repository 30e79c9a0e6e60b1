"""Training: stacks of shallow networks, and in ``deep`` any torch module, by Lightning."""
