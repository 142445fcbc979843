"""Two plots as SVG, without any library: lines, and boxes."""

import math
from html import escape

COLOURS = ["#d1495b", "#30638e", "#edae49", "#00798c", "#8d6a9f", "#5c946e", "#a0522d", "#666666", "#b5179e"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 70, 170, 40, 50


def text(x, y, words, anchor="middle", size=12, colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(str(words))}</text>'


def line(x1, y1, x2, y2, colour="#ddd", width=1):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def page(title, parts):
    style = 'font-family="Helvetica, Arial, sans-serif"'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" {style}>'
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return "\n".join([frame, background, text(WIDTH / 2, 22, title, size=15), *parts, "</svg>"]) + "\n"


def ticks(largest, count=5):
    """Round steps from 0 to beyond the largest."""
    raw = largest / count or 1
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= raw)
    return [step * i for i in range(math.ceil(largest / step) + 1)]


def lines(title, x_label, y_label, series, linear=False):
    """series: {name: [(x, y)]}. x is logarithmic, with a tick at each x that occurs; or linear, from 0, with round ticks."""
    xs = sorted({x for points in series.values() for x, _ in points})
    steps = ticks(max(y for points in series.values() for _, y in points))
    if linear:
        xs = ticks(xs[-1])
        place = lambda x: x / xs[-1]
    else:
        low, span = math.log2(xs[0]), (math.log2(xs[-1]) - math.log2(xs[0])) or 1
        place = lambda x: (math.log2(x) - low) / span
    at_x = lambda x: LEFT + place(x) * (WIDTH - LEFT - RIGHT)
    at_y = lambda y: HEIGHT - BOTTOM - y / steps[-1] * (HEIGHT - TOP - BOTTOM)
    parts = []
    for y in steps:
        parts += [line(LEFT, at_y(y), WIDTH - RIGHT, at_y(y)), text(LEFT - 8, at_y(y) + 4, f"{y:g}", "end")]
    for x in xs:
        parts += [line(at_x(x), TOP, at_x(x), HEIGHT - BOTTOM, "#eee"), text(at_x(x), HEIGHT - BOTTOM + 18, x)]
    parts += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label), text(LEFT - 50, TOP - 10, y_label, "start")]
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        width = 3 if name == "heed" else 1.5
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        if not linear:
            parts += [
                f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="{width + 1}" fill="{colour}"/>' for x, y in points
            ]
        parts += [line(WIDTH - RIGHT + 12, TOP + 18 * number, WIDTH - RIGHT + 32, TOP + 18 * number, colour, width)]
        parts.append(text(WIDTH - RIGHT + 38, TOP + 4 + 18 * number, name, "start"))
    return page(title, parts)


def boxes(title, y_label, samples):
    """samples: {name: [number > 0]}; the axis is logarithmic. Box: quartiles; whiskers: all; line: the median."""
    logs = {name: sorted(math.log10(max(each, 1e-12)) for each in values) for name, values in samples.items() if values}
    low = math.floor(min(each[0] for each in logs.values()))
    high = math.ceil(max(each[-1] for each in logs.values())) if logs else 0
    high = max(high, low + 1)
    at_y = lambda y: HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    parts = [text(LEFT - 50, TOP - 10, y_label, "start")]
    for y in range(low, high + 1):
        parts += [line(LEFT, at_y(y), WIDTH - 20, at_y(y)), text(LEFT - 8, at_y(y) + 4, f"1e{y}", "end")]
    room = (WIDTH - 20 - LEFT) / len(logs)
    for number, (name, values) in enumerate(logs.items()):
        centre, colour = LEFT + room * (number + 0.5), COLOURS[number % len(COLOURS)]
        quarter = [values[round(part * (len(values) - 1))] for part in (0, 0.25, 0.5, 0.75, 1)]
        half = min(room * 0.3, 40)
        parts.append(line(centre, at_y(quarter[0]), centre, at_y(quarter[4]), colour, 1.5))
        box = f'x="{centre - half:.1f}" y="{at_y(quarter[3]):.1f}" width="{2 * half:.1f}"'
        height = max(at_y(quarter[1]) - at_y(quarter[3]), 1)
        parts.append(f'<rect {box} height="{height:.1f}" fill="{colour}" fill-opacity="0.35" stroke="{colour}"/>')
        parts.append(line(centre - half, at_y(quarter[2]), centre + half, at_y(quarter[2]), colour, 2.5))
        parts.append(text(centre, HEIGHT - BOTTOM + 18, name, size=11))
    return page(title, parts)
