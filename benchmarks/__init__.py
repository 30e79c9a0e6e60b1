"""Benchmarks: few, named, each with a bar that can fail, each figure one JSON line."""
