"""The paper's definitions and theorems as functions of numbers, so that each of them can be checked."""
