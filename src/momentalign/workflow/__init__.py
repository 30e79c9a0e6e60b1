"""From tables to a model and from a model to predictions: what ``ma.fit`` and the command line do."""
