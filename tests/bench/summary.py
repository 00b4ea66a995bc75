# SPDX-License-Identifier: GPL-2.0
"""From single figures to medians, spreads and ratios."""

from math import floor, isfinite, log2
from statistics import median

from tests.bench import plan


def spread(values):
    """How far the rounds are apart: the largest less the smallest, in parts of the median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def ratios(ours, theirs, smaller_is_better):
    """Round by round, whose two figures are close in time; more is better. `ours` and `theirs` are figures by round."""
    found = []
    for turn in sorted(set(ours) & set(theirs)):
        a, b = ours[turn], theirs[turn]
        # A tail may be missing: it is no number where perftest saw none.
        if a and b and isfinite(a) and isfinite(b):
            found.append(b / a if smaller_is_better else a / b)
    return found


def summarize(events):
    """The events of a run as plain data: `rows`, in the order of the plan."""
    figures, reached = {}, {}
    for event in events:
        if event["event"] == "figure":
            figures.setdefault((event["row"], event["driver"]), {})[event["round"]] = event
    rows = []
    for row in plan.rows():
        both = [figures.get((row.key, driver), {}) for driver in plan.DRIVERS]
        one = {"key": row.key, "way": row.way, "place": row.place, "name": row.name, "kind": row.kind,
               "unit": plan.UNIT[row.kind], "target": row.target(reached.get(row.idle.key)),
               "command": " ".join(row.argv("DEVICE", "GID", "PORT"))}
        for driver, found in zip(plan.DRIVERS, both):
            if found:
                one[driver] = side(found)
        found = ratios(*({turn: e["value"] for turn, e in by.items()} for by in both), row.kind == "latency")
        if found:
            one["ratio"] = {"median": median(found), "least": min(found), "most": max(found)}
            reached[row.key] = one["ratio"]["median"]
            if one["target"] is not None:
                one["met"] = one["ratio"]["median"] >= one["target"]
        tails = ratios(*({turn: e.get("tail") for turn, e in by.items()} for by in both), True)
        if tails:
            one["tail_ratio"] = {"median": median(tails), "least": min(tails), "most": max(tails)}
        rows.append(one)
    notes = list(dict.fromkeys(event["text"] for event in events if event["event"] == "note"))
    return {"rows": rows, "instructions": instructions(events), "cpus": cpus(events), "notes": notes}


def cpus(events):
    """Models of processors: the two boots may have different ones, for the one that counts is always emulated."""
    return list(dict.fromkeys(event["cpu"] for event in events if event["event"] == "up"))


# The part of a recorded ratio below which a row has lost: times differ from run to run, instructions of rdma_rxe by up to 7 %.
KEPT = {"instructions": 0.92}
KEPT_TIME = 0.8


# The row whose figure of rdma_rxe says how fast the host is.
REFERENCE = "plain: one device: ib_send_lat 64 B"


def bed(result, how):
    """On what the ratios of times were taken: hosts that differ in speed by half have ratios that do, too, for what bounds
    rdma_rxe is not what bounds ferroce."""
    kind = how.split(",")[0]
    times = [row["rxe"]["median"] for row in result["rows"] if row["key"] == REFERENCE and "rxe" in row]
    if not times:
        return kind
    halves = floor(2 * log2(times[0]))
    least, most = (round(2 ** (half / 2)) for half in (halves, halves + 1))
    return f"{kind}, {least} to {most} us of rdma_rxe's latency"


def reached(result, how, of_rounds="median"):
    """The ratios of a run, by how they were measured and by row; of its rounds the median, the least or the most."""
    found = {bed(result, how): {row["key"]: round(row["ratio"][of_rounds], 2) for row in result["rows"] if "ratio" in row},
             "instructions": {f"{row['place']}: {row['name']}": round(row["ratio"], 3) for row in result["instructions"]
                              if "ratio" in row}}
    return {where: ratios_of for where, ratios_of in found.items() if ratios_of}


def lost(before, now):
    """What is said of the rows whose recorded ratio is no longer reached; `now` has the best of all rounds."""
    return [f"{row} ({where}): the ratio to rdma_rxe is at most {ratio}, and was {before[where][row]}"
            for where, ratios_of in now.items() for row, ratio in ratios_of.items()
            if ratio < KEPT.get(where, KEPT_TIME) * before.get(where, {}).get(row, 0)]


def merged(before, now):
    """The record with what a run has reached in place of what it had of the same rows."""
    return before | {where: before.get(where, {}) | ratios_of for where, ratios_of in now.items()}


def as_toml(record):
    """The record as a file has it. Names of rows have no quotes."""
    return "".join(f'\n["{where}"]\n' + "".join(f'"{row}" = {ratio}\n' for row, ratio in ratios_of.items())
                   for where, ratios_of in record.items())


def machine(result):
    """What the figures were taken on, in a line."""
    return f"kernel {result['kernel']}; {result['how']}; processor {' and then '.join(result['cpus'])}"


def instructions(events):
    """Rows of instructions for one operation, in the order in which they came."""
    rows = {}
    for event in events:
        if event["event"] == "instructions":
            one = rows.setdefault((event["place"], event["row"]), {"place": event["place"], "name": event["row"]})
            one[event["driver"]] = event["value"]
    for one in rows.values():
        ours, theirs = (one.get(driver) for driver in plan.DRIVERS)
        if ours and theirs:
            one["ratio"] = theirs / ours
    return list(rows.values())


def side(found):
    values = [found[turn]["value"] for turn in sorted(found)]
    one = {"median": median(values), "spread": spread(values), "values": values,
           "counters": [found[turn]["counters"] for turn in sorted(found)]}
    tails = [found[turn]["tail"] for turn in sorted(found) if "tail" in found[turn]]
    if tails:
        one["tail"] = {"median": median(tails), "values": tails}
    return one


def number(value):
    """Three digits or more, whatever the size."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(rows):
    """Lines of text cells for rows that are run in one way, and their head."""
    head = ["", "unit", *(x for driver in plan.DRIVERS for x in (driver, "+-")), "ratio", "least..most", "wanted", ""]
    lines = []
    for row in rows:
        cells = [row["name"], row["unit"]]
        for driver in plan.DRIVERS:
            got = row.get(driver)
            cells += [number(got["median"]), f"{got['spread'] / 2:.0%}"] if got else ["failed", ""]
        cells += verdict(row.get("ratio"), row["target"])
        lines.append(cells)
        if "tail_ratio" in row:
            # The tail of a busy machine is its scheduler's, so it is shown, and no target is held against it.
            tails = [row.get(driver, {}).get("tail", {}).get("median") for driver in plan.DRIVERS]
            lines.append(["  99.9 %", row["unit"], number(tails[0]), "", number(tails[1]), "",
                          *verdict(row["tail_ratio"], None)])
    return lines, head


def verdict(ratio, target):
    wanted = "" if target is None else f"{target:.3g}x"
    if not ratio:
        return ["-", "", wanted, ""]
    return [f"{ratio['median']:.2f}x", f"{ratio['least']:.2f}..{ratio['most']:.2f}", wanted,
            "missed" if target is not None and ratio["median"] < target else ""]


def page(result, before, about):
    """The lines of the tables in Documentation/performance.md; `before` has the recorded ratios, `about` the machine."""
    lines = [f"{about}. {result['rounds']} rounds; the ratio is the median, behind it the least and the most of all rounds.", ""]
    for way, words in plan.WAYS.items():
        rows = [row for row in result["rows"] if row["way"] == way and "ratio" in row]
        lines += [f"### {words[0].upper()}{words[1:]}", "",
                  "| | ferroce | rdma_rxe | ratio | recorded | wanted |", "|---|---|---|---|---|---|"]
        for row in rows:
            ratio, was = row["ratio"], before.get(bed(result, result["how"]), {}).get(row["key"])
            cells = [row["name"], *(f"{number(row[driver]['median'])} {row['unit']}" for driver in plan.DRIVERS),
                     f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})",
                     f"{was:.2f}" if was else "", f"{row['target']:.3g}" if row["target"] else ""]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    lines += ["### Instructions of one operation", "", "| | ferroce | rdma_rxe | ratio |", "|---|---|---|---|"]
    lines += [f"| {plan.PLACES[place]}: {name} | {' | '.join(rest)} |"
              for place, name, *rest in instruction_table(result["instructions"])[0]]
    return lines


def instruction_table(rows):
    """Lines of text cells about instructions, and their head."""
    return [[row["place"], row["name"], *(number(row.get(driver)) for driver in plan.DRIVERS),
             f"{row['ratio']:.2f}x" if "ratio" in row else "-"] for row in rows], \
        ["", "one operation", *plan.DRIVERS, "ratio"]
