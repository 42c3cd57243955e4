#!/usr/bin/env python3
"""Draws the course of runs from their metrics.jsonl: MLM loss (held out too), throughput, peak memory, learning rate.

usage: plot_run.py RUN_DIR [RUN_DIR ...] [--phases] [--output FILE.png|FILE.svg ...] [--reference "LABEL=LOSS" ...]

RUN_DIR      what `tempo train` wrote; several are drawn into one picture and named by their folders
--phases     each run goes on from the one before, as BERT's second phase: they are drawn one after another
--output     files to write, by suffix PNG or SVG; default RUN_DIR/curve.png and .svg, for several runs curves.png and .svg here
--reference  a dashed line in the panel of losses, as "unigram entropy=6.18"; may be given again

Exit codes: 0 done, 2 when something given cannot be used, which one line says. Needs matplotlib, which the environment of
scripts/bootstrap.sh has. Equal metrics give equal bytes.
"""
import argparse
import json
import math
import os
import pathlib
import sys

import matplotlib

import matplotlib.patheffects as patheffects
import matplotlib.pyplot as plt
import matplotlib.ticker as ticker
import numpy as np

matplotlib.use("Agg")

# Okabe and Ito's colours, which colour-blind people tell apart, without yellow, which is too light for lines on white.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
GREY = "#5F6368"
SIZE_INCHES, DOTS_PER_INCH = (10, 6.4), 200  # 1000 columns wide in a README, sharp on a fine display
SMOOTHING_WINDOWS = 40  # the smoothed line is a mean over this fraction of a run
RAW = dict(marker="o", linestyle="none", alpha=0.3, markersize=2.6, markeredgewidth=0)  # single records, behind the smoothed line
STYLE = {
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.edgecolor": GREY,
    "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#E3E5E8", "grid.linewidth": 0.8, "axes.axisbelow": True, "legend.frameon": False,
    "svg.hashsalt": "tempo", "svg.fonttype": "path",
}


class Mistake(Exception):
    """Something the user gave cannot be used."""


class OneLineParser(argparse.ArgumentParser):
    def error(self, message):
        raise Mistake(message)


class Run:
    """The records of one run by kind, as columns of floats; what is missing or no number is NaN."""

    def __init__(self, folder):
        self.folder = folder
        self.name = folder.resolve().name
        self.first_step = 0  # in the picture
        records = read_records(folder)
        self.train = [record for record in records if record["kind"] == "train"]
        self.validation = [record for record in records if record["kind"] == "validation"]
        if not self.train:
            raise Mistake(f"{folder / 'metrics.jsonl'}: has no train records yet")

    def column(self, kind, key):
        values = np.array([number(record.get(key)) for record in getattr(self, kind)])
        return values + self.first_step if key == "step" else values


def number(value):
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else math.nan


def read_records(folder):
    """The objects of metrics.jsonl. A last line without its end is being written just now and is left out."""
    if not folder.is_dir():
        raise Mistake(f"{folder}: no such folder")
    path = folder / "metrics.jsonl"
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        raise Mistake(f"{folder}: holds no metrics.jsonl; is it the folder of a run?") from None
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    records = []
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:  # of JSON or of UTF-8
            raise Mistake(f"{path}:{place}: is not JSON") from None
        if not isinstance(record, dict) or math.isnan(number(record.get("step"))) or "kind" not in record:
            raise Mistake(f"{path}:{place}: is no record with kind and step")
        records.append(record)
    return records


def smoothed(values):
    """Centred means over a window of the record's own length / SMOOTHING_WINDOWS, shorter at the ends; NaN counts for nothing."""
    half = len(values) // SMOOTHING_WINDOWS // 2
    windows = [values[max(0, i - half):i + half + 1] for i in range(len(values))]
    return np.array([np.nanmean(w) if np.isfinite(w).any() else math.nan for w in windows])


def parse_reference(text):
    label, separator, value = text.rpartition("=")
    try:
        loss = float(value)
    except ValueError:
        loss = math.nan
    if not separator or not label.strip() or not math.isfinite(loss):
        raise Mistake(f"--reference {text}: write it as \"LABEL=LOSS\", for example \"unigram entropy=6.18\"")
    return label.strip(), loss


def parse_arguments(arguments):
    parser = OneLineParser(prog="plot_run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                           usage=argparse.SUPPRESS)
    parser.add_argument("folders", metavar="RUN_DIR", nargs="+", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--phases", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--output", metavar="FILE", nargs="+", action="extend", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--reference", metavar="LABEL=LOSS", action="append", default=[], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if len(given.folders) > len(COLOURS):
        raise Mistake(f"{len(given.folders)} runs are too many for one picture; at most {len(COLOURS)} can be told apart")
    stem = given.folders[0] / "curve" if len(given.folders) == 1 else pathlib.Path("curves")
    given.output = given.output or [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for file in given.output:
        if file.suffix.lower() not in (".png", ".svg"):
            raise Mistake(f"--output {file}: only *.png and *.svg can be written")
    given.reference = [parse_reference(text) for text in given.reference]
    return given


def read_runs(folders, are_phases):
    runs = [Run(folder) for folder in folders]
    for before, run in zip(runs, runs[1:] if are_phases else []):
        run.first_step = np.nanmax(before.column("train", "step"))
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:  # folders of one name are told apart by their paths
            run.name = str(run.folder)
    return runs


def limit_steps(axis, runs):
    last = max(np.nanmax(run.column("train", "step")) for run in runs)
    axis.set_xlim(0, max(1.01 * last, 1))


def limit_losses(axis, runs, references):
    """Leaves out the first few records, which are far above the rest, where that shows the rest larger; never a reference."""
    rest = []
    for run in runs:
        losses = run.column("train", "mlm_loss")
        rest += [losses[len(losses) // 100:], run.column("validation", "mlm_loss")]
    values = np.concatenate(rest + [[loss for _, loss in references]])
    values = values[np.isfinite(values)]
    if values.size and values.min() < values.max():
        margin = 0.05 * (values.max() - values.min())
        axis.set_ylim(values.min() - margin, values.max() + margin)


def draw_reference(axis, runs, label, loss):
    """A dashed line with its label at the end, above or below, that is farthest from the curves."""
    axis.axhline(loss, color=GREY, linestyle="--", linewidth=1.2, zorder=1.5)
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    curves = [(run.column(kind, "step"), run.column(kind, "mlm_loss")) for run in runs for kind in ("train", "validation")]
    best = None
    for side, along in (("right", np.linspace(0.8, 1, 30)), ("left", np.linspace(0, 0.2, 30))):  # a label takes a fifth
        for place, sign in (("bottom", 1), ("top", -1)):
            middle = loss + sign * 0.03 * (top - bottom)
            distances = [np.abs(np.interp(left + along * (right - left), steps, losses) - middle)
                         for steps, losses in curves if losses.size]
            distance = np.nanmin(np.concatenate(distances + [[top - bottom]]))
            if best is None or distance > best[0]:
                best = distance, side, place, sign
    _, side, place, sign = best
    axis.annotate(f"{label} {loss:g}", (0.998 if side == "right" else 0.004, loss), xycoords=("axes fraction", "data"),
                  xytext=(0, 3 * sign), textcoords="offset points", ha=side, va=place, color=GREY, fontsize=9,
                  path_effects=[patheffects.withStroke(linewidth=3, foreground="white")])


def draw_losses(axis, runs, references):
    several = len(runs) > 1
    axis.set_title("Masked-token loss")
    axis.set_ylabel("nats per label")
    for run, colour in zip(runs, COLOURS):
        steps, losses = run.column("train", "step"), run.column("train", "mlm_loss")
        axis.plot(steps, losses, **RAW, color=colour)
        axis.plot(steps, smoothed(losses), color=colour, linewidth=1.8, label=run.name if several else "training, smoothed")
    for run, colour in zip(runs, COLOURS):
        held_out = run.column("validation", "mlm_loss")
        if held_out.size:
            axis.plot(run.column("validation", "step"), held_out, "o-", color=colour if several else COLOURS[1], linewidth=0.8,
                      markersize=5, markeredgecolor="white", markeredgewidth=0.8, label=None if several else "held out")
    if several and any(run.validation for run in runs):
        axis.plot([], [], "o-", color=GREY, linewidth=0.8, markersize=5, markeredgecolor="white", label="held out")
    limit_steps(axis, runs)
    limit_losses(axis, runs, references)
    for label, loss in references:
        draw_reference(axis, runs, label, loss)
    # Beside the title, where no curve can be.
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.2, handlelength=1.6, columnspacing=1.4)


def draw_line(axis, runs, key, title, unit, scale=1.0):
    axis.set_title(title)
    axis.set_ylabel(unit)
    for run, colour in zip(runs, COLOURS):
        axis.plot(run.column("train", "step"), run.column("train", key) * scale, color=colour, linewidth=1.5)


def start_at_zero(axis):
    top = axis.get_ylim()[1]
    axis.set_ylim(0, 1.1 * top if top > 0 else 1)


def draw_throughput(axis, runs):
    axis.set_title("Throughput")
    axis.set_ylabel("sequences per second")
    for run, colour in zip(runs, COLOURS):
        steps, rates = run.column("train", "step"), run.column("train", "sequences_per_s")
        axis.plot(steps, rates, **RAW, color=colour)
        axis.plot(steps, smoothed(rates), color=colour, linewidth=1.5)
    start_at_zero(axis)


def draw_memory(axis, runs):
    peaks = np.concatenate([run.column("train", "peak_allocated_bytes") for run in runs])
    largest = np.nanmax(peaks) if np.isfinite(peaks).any() else 0
    unit, size = ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)
    draw_line(axis, runs, "peak_allocated_bytes", "Peak memory", f"{unit} allocated", 1 / size)
    start_at_zero(axis)


def draw_rate(axis, runs):
    rates = np.concatenate([run.column("train", "lr") for run in runs])
    largest = np.nanmax(rates) if np.isfinite(rates).any() else 0
    power = math.floor(math.log10(largest)) if largest > 0 else 0
    draw_line(axis, runs, "lr", "Learning rate", f"$\\times\\,10^{{{power}}}$" if power else "", 10.0**-power)
    start_at_zero(axis)


def draw(runs, references):
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=SIZE_INCHES, layout="constrained")
        grid = figure.add_gridspec(2, 3, height_ratios=[1.7, 1])
        losses = figure.add_subplot(grid[0, :])
        draw_losses(losses, runs, references)
        below = [figure.add_subplot(grid[1, column]) for column in range(3)]
        for axis, panel in zip(below, (draw_throughput, draw_memory, draw_rate)):
            panel(axis, runs)
        for axis in (losses, *below):
            limit_steps(axis, runs)
            axis.set_xlabel("step")
            axis.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
            axis.xaxis.set_major_locator(ticker.MaxNLocator(10 if axis is losses else 4, integer=True))
        for axis in below:
            axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
        return figure


def write(figure, file):
    """Writes beside the name and renames, so that a picture is there whole or not at all."""
    kind = file.suffix.lower()[1:]
    aside = file.with_name(f".{file.name}.writing-{os.getpid()}")
    try:
        with plt.rc_context(STYLE):
            figure.savefig(aside, format=kind, dpi=DOTS_PER_INCH, metadata={"Date": None} if kind == "svg" else None)
        os.replace(aside, file)
    except OSError as error:
        raise Mistake(f"{file}: {error.strerror}") from None
    finally:
        aside.unlink(missing_ok=True)


def main(arguments):
    try:
        given = parse_arguments(arguments)
        figure = draw(read_runs(given.folders, given.phases), given.reference)
        for file in given.output:
            write(figure, file)
            print(file)
    except Mistake as mistake:
        print(f"plot_run: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
