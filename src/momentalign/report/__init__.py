"""Results turned into figures, tables and one self-contained HTML page; needs no torch."""
