#!/usr/bin/env python3
"""Tables and plot of a sweep: report.py SWEEP.json writes docs/speculation-simulated.svg and the tables
between the marks of docs/speculation-simulated.md. SWEEP.json is the output of outrider_sim."""

import argparse
import json
import math
import pathlib

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
MARKS = ("<!-- tables: tests/sim/report.py -->\n", "<!-- end of tables -->\n")
# acceptance, batch, RTT in ms, predicted ahead of the verifier, predicted co-located
PREDICTIONS = [
    (0.8, 1, 0.1, 3.95, 2.47), (0.8, 1, 2, 3.75, 2.47), (0.8, 32, 0.1, 2.85, 2.33), (0.8, 32, 2, 2.69, 2.33),
    (0.8, 128, 0.1, 1.28, 1.16), (0.8, 128, 2, 1.28, 1.16), (0.6, 8, 0.1, 2.24, 1.66), (0.6, 8, 2, 2.19, 1.66),
    (0.6, 256, 0.1, 1.00, 1.00), (0.6, 256, 2, 1.00, 1.00)]
COLOURS = ["#1b5e9b", "#d1671f", "#2e8b57", "#8e3a9d", "#b02a37"]
PANEL_WIDTH, PANEL_HEIGHT, MARGIN, LABELS = 300, 260, 46, 120


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def predictions(points):
    rows = []
    for acceptance, batch, rtt, ahead, colocated in PREDICTIONS:
        point = points[acceptance, batch, rtt]
        rows.append([f"{acceptance}", f"{batch}", f"{rtt:g}", f"{ahead:.2f}", f"{point['speedup']:.2f}",
                     f"{100 * (point['speedup'] / ahead - 1):+.0f} %", f"{point['rows']}",
                     f"{point['speedup_one_row']:.2f}", f"{colocated:.2f}", f"{point['colocated']:.2f}"])
    return table(["acceptance", "batch", "RTT ms", "predicted", "simulated", "", "rows", "with one row",
                  "co-located, predicted", "… computed"], rows)


def sweep(points):
    rtts = sorted({rtt for _, _, rtt in points})
    rows = []
    for acceptance in sorted({key[0] for key in points}):
        for batch in sorted({key[1] for key in points}):
            line = [points[acceptance, batch, rtt] for rtt in rtts]
            rows.append([f"{acceptance}", f"{batch}"] + [f"{point['speedup']:.2f}" for point in line] +
                        [f"{line[1]['colocated']:.2f}", f"{100 * line[1]['drafted']:.0f} %",
                         f"{line[1]['depth']:.1f}", f"{100 * line[1]['accepted']:.0f} %"])
    header = ["acceptance", "batch"] + [f"{rtt:g} ms" for rtt in rtts]
    return table(header + ["co-located", "rows with hints", "hints behind one", "came true"], rows)


class Panel:
    """One chart with a logarithmic x axis."""

    def __init__(self, left, title, ticks, top):
        self.left, self.ticks, self.top = left, ticks, top
        self.out = [f'<text x="{left}" y="22" class="t">{title}</text>']
        for value in range(0, math.ceil(top) + 1):
            y = self.y(value)
            self.out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL_WIDTH}" y2="{y:.1f}" '
                            f'class="{"one" if value == 1 else "grid"}"/>'
                            f'<text x="{left - 6}" y="{y + 4:.1f}" class="e">{value}x</text>')
        for tick in ticks:
            self.out.append(f'<text x="{self.x(tick):.1f}" y="{MARGIN + PANEL_HEIGHT + 16}" class="m">{tick:g}</text>')

    def x(self, value):
        first, last = math.log(self.ticks[0]), math.log(self.ticks[-1])
        return self.left + (math.log(value) - first) / (last - first) * PANEL_WIDTH

    def y(self, value):
        return MARGIN + PANEL_HEIGHT * (1 - value / math.ceil(self.top))

    def lines(self, named):
        """named: [(label, [(x, y)], dashed)]; the legend stands at the right."""
        for index, (label, line, dashed) in enumerate(named):
            path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in line)
            dash = ' stroke-dasharray="5 4"' if dashed else ""
            stroke = f'fill="none" stroke="{COLOURS[index]}" stroke-width="2"{dash}'
            left, y = self.left + PANEL_WIDTH + 8, MARGIN + 12 + 18 * index
            self.out.append(f'<polyline points="{path}" {stroke}/><path d="M{left} {y}h18" {stroke}/>'
                            f'<text x="{left + 23}" y="{y + 4}">{label}</text>')


def plot(points):
    batches = sorted({batch for _, batch, _ in points})
    rtts = sorted({rtt for _, _, rtt in points})
    step = PANEL_WIDTH + MARGIN + LABELS
    by_batch = Panel(MARGIN, "speed-up by batch, acceptance 0.8", batches, 4.5)
    curve = lambda rtt, what: [(batch, points[0.8, batch, rtt][what]) for batch in batches]
    by_batch.lines([("RTT 0.1 ms", curve(0.1, "speedup"), False), ("RTT 2 ms", curve(2, "speedup"), False),
                    ("RTT 10 ms", curve(10, "speedup"), False), ("one row", curve(0.1, "speedup_one_row"), True),
                    ("co-located", curve(0.1, "colocated"), True)])
    by_rtt = Panel(MARGIN + step, "… by RTT in ms, acceptance 0.8", rtts, 4.5)
    by_rtt.lines([(f"batch {batch}", [(rtt, points[0.8, batch, rtt]["speedup"]) for rtt in rtts], False)
                  for batch in (1, 8, 32, 128, 256)])
    by_acceptance = Panel(MARGIN + 2 * step, "… by batch, RTT 0.1 ms", batches, 6)
    by_acceptance.lines([(f"accepted {acceptance}",
                          [(batch, points[acceptance, batch, 0.1]["speedup"]) for batch in batches], False)
                         for acceptance in (0.9, 0.8, 0.7, 0.6, 0.5)])
    width, height = 3 * step + 10, PANEL_HEIGHT + MARGIN + 30
    style = ("text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.e{text-anchor:end}.m{text-anchor:middle}"
             ".grid{stroke:#ddd}.one{stroke:#888}")
    body = "\n".join(line for panel in (by_batch, by_rtt, by_acceptance) for line in panel.out)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">\n<style>{style}</style>\n'
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=pathlib.Path, metavar="SWEEP.json")
    listed = json.loads(parser.parse_args().sweep.read_text(encoding="utf-8"))
    points = {(point["acceptance"], point["batch"], point["rtt_ms"]): point for point in listed}
    if not all(prediction[:3] in points for prediction in PREDICTIONS):
        parser.error("this is not the whole sweep")
    slowest = min(listed, key=lambda point: min(point["speedup"], point["speedup_one_row"]))
    print("lowest:", slowest)
    (DOCS / "speculation-simulated.svg").write_text(plot(points), encoding="utf-8")
    page = DOCS / "speculation-simulated.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    tables = f"\n{predictions(points)}\nThe sweep:\n\n{sweep(points)}\n"
    page.write_text(before + MARKS[0] + tables + MARKS[1] + after, encoding="utf-8")


if __name__ == "__main__":
    main()
