"""The paper's definitions and theorems as functions, so that each of them can be checked."""
