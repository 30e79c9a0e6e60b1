"""Results as figures, tables and a single self-contained HTML page; needs no torch."""
