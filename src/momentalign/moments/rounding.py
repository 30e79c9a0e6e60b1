"""How many rounding errors make a difference: below, a term of a distance is noise, and so is its gradient."""

__all__ = ["ROUNDING_ERRORS"]

# Sums of some hundred rows err by about as many.
ROUNDING_ERRORS = 32.0
