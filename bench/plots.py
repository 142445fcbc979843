"""Pictures of recorded runs: as SVG, always (svg.py), and as PNG, where matplotlib is installed.

    python bench/plots.py bench/results/training-cpu.json        # beside the record
    python bench/plots.py FILE.json --to=FOLDER

Takes the JSON of bench/compare.py and of examples/python/19_train_a_transformer.py, so that a run on a machine without matplotlib
has its PNG made on another.
"""

import argparse
import json
import pathlib
import sys

import svg

NO_PNG = "no PNG: matplotlib is not installed; with it, `python bench/plots.py FILE.json` makes them from the JSON"


def canvas():
    """(figure, axes) of the size of the SVG; None without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(svg.WIDTH / 100, svg.HEIGHT / 100), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def colours(names):
    return {name: svg.COLOURS[number % len(svg.COLOURS)] for number, name in enumerate(names)}


def lines(stem, title, x_label, y_label, series, linear=False):
    """Writes stem.svg and, where it can, stem.png; returns their paths. series: {name: [(x, y)]}."""
    written = [stem.with_suffix(".svg")]
    written[0].write_text(svg.lines(title, x_label, y_label, series, linear))
    if (drawn := canvas()) is not None:
        figure, axes = drawn
        for name, colour in colours(series).items():
            points = sorted(series[name])
            marker = {} if linear else {"marker": "o"}
            axes.plot(
                *zip(*points), label=name, color=colour, linewidth=2.5 if name == "heed" else 1.2, markersize=4, **marker
            )
        if not linear:
            axes.set_xscale("log", base=2)
            xs = sorted({x for points in series.values() for x, _ in points})
            axes.set_xticks(xs, [str(x) for x in xs])
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        axes.set_ylim(bottom=0)
        axes.grid(color="#ddd")
        axes.legend()
        written.append(stem.with_suffix(".png"))
        figure.savefig(written[-1])
    return written


def boxes(stem, title, y_label, samples):
    """Likewise; samples: {name: [number > 0]}, on a logarithmic axis."""
    samples = {name: [max(each, 1e-12) for each in values] for name, values in samples.items() if values}
    written = [stem.with_suffix(".svg")]
    written[0].write_text(svg.boxes(title, y_label, samples))
    if (drawn := canvas()) is not None:
        figure, axes = drawn
        axes.boxplot(list(samples.values()), whis=(0, 100))
        axes.set_xticks(range(1, len(samples) + 1), list(samples))
        axes.set(title=title, ylabel=y_label, yscale="log")
        axes.grid(axis="y", color="#ddd")
        written.append(stem.with_suffix(".png"))
        figure.savefig(written[-1])
    return written


def draw_comparison(record, folder):
    """Speed over length with the peers as lines, one picture for each type, mask and head dim; errors as boxes."""
    written = []
    for group in dict.fromkeys(row["group"] for row in record["rows"]):
        series = {}
        for row in record["rows"]:
            if row["group"] == group:
                for name, result in row["results"].items():
                    series.setdefault(name, []).append((row["s"], result["tflops"]))
        title = f"{group}, {record['machine']['device']}"
        stem = folder / f"speed-{group.replace(' ', '-')}"
        written += lines(stem, title, "sequence length", "TFLOPS", series)
    errors = {}
    for row in record["rows"]:
        for name, error in row["errors"].items():
            errors.setdefault(name, []).append(error)
    stem = folder / ("errors-backward" if record["backward"] else "errors")
    return written + boxes(stem, "error against fp64", "of the largest element", errors)


def draw_training(record, folder, stem):
    series = {name: list(enumerate(losses)) for name, losses in record["curves"].items()}
    title = f"a small transformer, attention in {record['type']}, {record['machine']['device']}"
    return lines(folder / stem, title, "step", "loss", series, linear=True)


def draw(file, folder):
    """Every picture of a record, however it was made; their paths."""
    file, folder = pathlib.Path(file), pathlib.Path(folder)
    record = json.loads(file.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    if "curves" in record:
        return draw_training(record, folder, file.stem)
    if "rows" in record and "backward" in record:
        return draw_comparison(record, folder)
    raise SystemExit(f"plots: {file}: neither a record of bench/compare.py nor one of a training.")


def say(written):
    for each in written:
        print(f"wrote {each}")
    if not any(each.suffix == ".png" for each in written):
        print(NO_PNG)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="+")
    parser.add_argument("--to", help="folder; without it, where the record is")
    options = parser.parse_args()
    for file in options.file:
        say(draw(file, options.to or pathlib.Path(file).parent))


if __name__ == "__main__":
    sys.exit(main())
