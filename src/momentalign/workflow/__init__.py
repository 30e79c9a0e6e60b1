"""From files to a model folder, and from that to predictions: what the commands ``fit`` and ``predict`` do."""
