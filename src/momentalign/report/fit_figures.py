"""The pictures of a fit: signed shifts of features, and pairs of shares."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from momentalign.report.svg import Frame, Picture, label, number, path, rule

__all__ = ["paired_bars", "shift_bars"]

_LONGEST = 18
_THICK = 14


def shift_bars(shifts: Sequence[tuple[str, float]], *, title: str) -> Picture:
    """Draw one bar per feature, to the left of a common line where it shifted down, to the right where up."""
    size = max(*(abs(value) for _, value in shifts), 1e-12)
    low = -size if any(value < 0 for _, value in shifts) else 0.0
    high = size if any(value > 0 for _, value in shifts) or not low else 0.0
    frame = _frame((low, high), rows=len(shifts), row=24, left=180)
    zero = float(frame.x(0.0))
    parts = []
    for place, (name, value) in enumerate(shifts):
        middle, end = frame.top + 24 * (place + 0.5), float(frame.x(value))
        parts.append(label(132, middle + 4, _short(name), anchor="end"))
        parts.append(_bar(min(zero, end), middle - _THICK / 2, abs(end - zero), "ma-target"))
        side = -6 if value < 0 else 6
        parts.append(label(end + side, middle + 4, f"{value:+.2f}", anchor="end" if value < 0 else "start"))
    parts.append(rule(zero, frame.top, zero, frame.floor, "ma-axis"))
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def paired_bars(shares: Sequence[tuple[str, float, float]], *, title: str) -> Picture:
    """Draw two bars per name, the source's above the target's, in percent."""
    frame = _frame((0.0, max(max(pair) for _, *pair in shares)), rows=len(shares), row=44, left=142)
    parts = []
    for place, (name, *pair) in enumerate(shares):
        middle = frame.top + 44 * (place + 0.5)
        parts.append(label(frame.left - 10, middle + 4, _short(name), anchor="end"))
        for shift, value, css in zip((-_THICK - 1, 1), pair, ("ma-source", "ma-target"), strict=True):
            end = float(frame.x(value))
            parts.append(_bar(frame.left, middle + shift, end - frame.left, css))
            parts.append(label(end + 6, middle + shift + 11, f"{100 * value:.1f} %", anchor="start"))
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _frame(x_range: tuple[float, float], *, rows: int, row: int, left: float) -> Frame:
    return Frame(x_range=x_range, y_range=(0, 1), left=left, right=62, top=4, bottom=4, height=row * rows + 8)


def _bar(x: float, y: float, width: float, css: str) -> Markup:
    """Return one bar, a hair wide at least."""
    return path(f"M{number(x)} {number(y)}h{number(max(width, 1))}v{_THICK}H{number(x)}z", f"ma-bar {css}")


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
