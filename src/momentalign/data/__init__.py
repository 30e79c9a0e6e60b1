"""Benchmark data, generators and paired batches."""
