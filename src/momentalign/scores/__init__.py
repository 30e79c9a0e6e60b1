"""Choosing among models without target labels: scores of one model (higher is better), and what to do with several.

Every function takes arrays by keyword. Scores return a float; ratios and coefficients are arrays, a choice is an index.
"""
