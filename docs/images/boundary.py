"""Draw docs/images/boundary.svg from what the demo computed.

``momentalign demo --no-open`` writes momentalign-demo.json; ``python docs/images/boundary.py momentalign-demo.json``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from markupsafe import Markup

from momentalign.paper.artificial_page import boundary_panel
from momentalign.report.svg import Picture, label, mosaic, standalone

NAMES = {"nn": "source alone", "mann": "aligned"}
ABOVE = 44  # room for the text above a panel
STYLE = Markup("<style>.text {{ font: 600 27px system-ui, sans-serif; fill: var(--ink); }}</style>").format()


def panel(result: dict[str, Any], network: str) -> Picture:
    """Return the boundaries of one network below its name and its accuracy on the target."""
    accuracy = result["shown"][network]["accuracy_target"]
    text = f"{NAMES[network]}: {100 * accuracy:.0f} % right"
    drawn = boundary_panel(result["shown"][network]["weights"], result["source"], result["target"], text)
    moved = Markup('<g transform="translate(0 {})">{}</g>').format(ABOVE, drawn.content)
    return Picture(drawn.width, drawn.height + ABOVE, text, label(2, 28, text, "text", anchor="start") + moved)


def main(path: str) -> None:
    """Draw both networks side by side."""
    result = json.loads(Path(path).read_text(encoding="utf-8"))
    both = mosaic("", [[panel(result, network) for network in NAMES]])
    title = "Decision boundaries of a plain network (left) and of a moment-aligned one (right), both domains"
    picture = standalone(Picture(both.width, both.height, title, STYLE + both.content))
    Path(__file__).with_suffix(".svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
