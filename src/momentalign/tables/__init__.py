"""Tables: files and frames of many formats as rows of features."""
