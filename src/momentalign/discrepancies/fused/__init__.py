"""Fast paths of the distances: one read for the moments, one read and one write for the gradient."""
