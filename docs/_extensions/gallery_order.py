"""The examples of the gallery in the order in which one would read them."""

from __future__ import annotations

ORDER = [
    "artificial",
    "reviews_of_another_category",
    "table_with_drift",
    "own_network",
    "lightning",
    "choosing_the_weight",
    "several_sources",
    "two_instruments",
    "watching_a_stream",
    "when_it_fails",
]


class ReadingOrder:
    """Sort key of sphinx-gallery; an example that is not in the list stops the build."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> int:
        """Return the place of an example."""
        return ORDER.index(filename.removeprefix("plot_").removesuffix(".py"))
