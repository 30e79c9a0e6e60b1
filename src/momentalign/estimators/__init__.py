"""scikit-learn estimators: the robust default, the paper's networks, and transformers."""
