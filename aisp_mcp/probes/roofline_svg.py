"""The roofline as one self-contained SVG: log-log axes, roofs, ridge points, measured operations."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from aisp_mcp.model.probe import Roofline

_W, _H = 760, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 60
_COLORS = ("#0b5cad", "#b3420e", "#2c7a3f", "#7a3fa0", "#8a6d00", "#555555", "#a01050")


class _Axes:
    """Decades of intensity and rate, and their places in the picture."""

    def __init__(self, roofline: Roofline) -> None:
        peaks = [ceiling.rate.median for ceiling in roofline.ceilings]
        points = [point.intensity for point in roofline.points] or [1.0]
        band = roofline.bandwidth.rate.median
        x_high = max([*points, *(peak / band for peak in peaks)]) * 10
        self.x0, self.x1 = math.floor(math.log10(min(points) / 2)), math.ceil(math.log10(x_high))
        low = min([point.rate.median for point in roofline.points] + [band * 10**self.x0])
        self.y0, self.y1 = math.floor(math.log10(low)), math.ceil(math.log10(max(peaks) * 1.2))

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.x0) / (self.x1 - self.x0)
        return _LEFT + share * (_W - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.y0) / (self.y1 - self.y0)
        return _H - _BOTTOM - share * (_H - _TOP - _BOTTOM)


def draw(roofline: Roofline) -> str:
    """SVG text. Kernel and device names are escaped."""
    axes = _Axes(roofline)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" font-family="sans-serif" font-size="12" '
        f'role="img"><title>Roofline of {escape(roofline.device)}</title>',
        f'<rect width="{_W}" height="{_H}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">Roofline of {escape(roofline.device)}, measured</text>',
        *_grid(axes),
        *_roofs(axes, roofline),
        *_points(axes, roofline),
        "</svg>",
    ]
    return "\n".join(parts)


def _grid(axes: _Axes) -> list[str]:
    parts = []
    for power in range(axes.x0, axes.x1 + 1):
        x = axes.x(10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_H - _BOTTOM}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{_H - _BOTTOM + 18}" text-anchor="middle">{10.0**power:g}</text>')
    for power in range(axes.y0, axes.y1 + 1):
        y = axes.y(10.0**power)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_W - _RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_si(10.0**power)}</text>')
    middle = (_LEFT + _W - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_H - 16}" text-anchor="middle">Arithmetic intensity, FLOP/byte</text>')
    parts.append(f'<text transform="translate(16 {_H / 2}) rotate(-90)" text-anchor="middle">FLOP/s</text>')
    return parts


def _si(value: float) -> str:
    for factor, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g}"


def _roofs(axes: _Axes, roofline: Roofline) -> list[str]:
    band = roofline.bandwidth.rate.median
    parts = []
    for number, ceiling in enumerate(roofline.ceilings):
        peak, color = ceiling.rate.median, _COLORS[number % len(_COLORS)]
        left, ridge, right = 10.0**axes.x0, peak / band, 10.0**axes.x1
        path = f"{axes.x(left):.1f},{axes.y(band * left):.1f} {axes.x(ridge):.1f},{axes.y(peak):.1f} "
        path += f"{axes.x(right):.1f},{axes.y(peak):.1f}"
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        label = f"{escape(ceiling.name)} {_si(peak)}FLOP/s, ridge {ridge:.1f}"
        parts.append(
            f'<text x="{_W - _RIGHT - 4}" y="{axes.y(peak) - 5:.1f}" text-anchor="end" fill="{color}">{label}</text>'
        )
    return parts


def _points(axes: _Axes, roofline: Roofline) -> list[str]:
    parts = []
    for point in roofline.points:
        x, y = axes.x(point.intensity), axes.y(point.rate.median)
        share = f"{point.share_of_roof:.0%} of the roof"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#222222"><title>{escape(point.name)}: '
            f"{_si(point.rate.median)}FLOP/s, {share}</title></circle>"
        )
        parts.append(f'<text x="{x + 7:.1f}" y="{y + 14:.1f}" font-size="10">{escape(point.name)}</text>')
    return parts
