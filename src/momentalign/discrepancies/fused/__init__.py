"""Fast paths of the distances, behind the same functions: one read for the moments, one read and one write for the gradient."""
