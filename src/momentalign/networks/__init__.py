"""Networks: the shallow one of Algorithm 1, and tools to find, record and cut the layers of any module."""
