"""Choosing without target labels: reverse validation and its successors, whole grids trained as stacks."""
