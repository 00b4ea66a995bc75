# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace why` against every cause of an error that the suite provokes: its rule speaks, and no other."""

import importlib
import importlib.util
import re
import sys
from collections import Counter

from tests.guest.cases import cases, run_program
from tests.guest.fabric import loop, write
from tests.guest.scenario import require, say, scenario
from tests.scenarios.product.events import BUFFER, recording
from tests.scenarios.verbs.errors import judge

# The families of protection write 11 MB.
KIB_PER_CPU = 32768
# Where the command has its parts; what it says is asked of it as it is installed.
PARTS = "/usr/share/ferroce/trace"
MARK = re.compile(r"tracing_mark_write: (cause|over)(?: (\S+) (\w+): (.*))?$")
# What a cause may stand on that was before it.
BEFORE = re.compile(r": ferroce_(?:qp|qp_state|key): ")


def installed(part):
    """A part of the installed command, whose package has the name of another of Python's own."""
    name = "ferroce_trace"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, f"{PARTS}/__init__.py", submodule_search_locations=[PARTS])
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return importlib.import_module(f"{name}.{part}")


def provoked(text):
    """Of each cause in a trace: its family, its status, its text, and what `ferroce trace why` says of it."""
    before, during, cause = [], None, None
    for line in text.splitlines():
        mark = MARK.search(line)
        if mark and mark[1] == "cause":
            cause, during = mark.groups()[1:], []
        elif mark:
            yield *cause, installed("why").reasons(installed("events").parse("\n".join(before + during)))
            before, during = before + [one for one in during if BEFORE.search(one)], None
        elif during is not None:
            during.append(line)
        elif BEFORE.search(line):
            before.append(line)


# What is to be said of a cause, by its status and by what verbs_cases calls it; the first that fits.
REASONS = (
    ("LOC_LEN_ERR", "", "longer than the queue pair sends"),
    ("LOC_QP_OP_ERR", "", "the queue pair cannot do this: .* max_rd_atomic 0"),
    ("LOC_PROT_ERR", "", "of the request names memory that its lkey does not cover"),
    ("REM_OP_ERR", "written by hand", "the receive that it took, wr .* is malformed"),
    ("REM_OP_ERR", "", "the receive that it took, .* names memory that is not accessible there"),
    ("REM_INV_REQ_ERR", "into a receive", "longer than the receive that it took"),
    ("REM_INV_REQ_ERR", "does not permit", "qp_access_flags lack the right"),
    ("REM_INV_REQ_ERR", "serves", "max_dest_rd_atomic is less"),
    ("REM_INV_REQ_ERR", "path MTU", "path_mtu is not ours"),
    ("REM_INV_REQ_ERR", "not aligned", "atomic one is not aligned"),
    ("REM_ACCESS_ERR", "unknown key|another tag|key 0", "that of no region or window"),
    ("REM_ACCESS_ERR", "deregistered|registered anew", "was deregistered .* before$"),
    ("REM_ACCESS_ERR", "may not|without remote rights|permits no", "registered without IBV_ACCESS_REMOTE_"),
    ("REM_ACCESS_ERR", "words are not aligned", "was given to .* its words are not aligned"),
    ("REM_ACCESS_ERR", "another protection domain", "of another protection domain"),
    ("REM_ACCESS_ERR", "", "was given to .*: the range begins or ends outside"),
    ("RETRY_EXC_ERR", "PSN", "has executed none .*: its rq_psn is not our sq_psn"),
    ("RETRY_EXC_ERR", "in (?:ERR|RESET|INIT)$", "drop_state: .* is in (ERR|RESET|INIT) since"),
    ("RETRY_EXC_ERR", "connected to another", "drop_address: |drop_state: "),
    ("RETRY_EXC_ERR", "gone|nobody", "drop_unknown_qp: there is no such queue pair"),
    ("RNR_RETRY_EXC_ERR", "", r"had no receive \d+ times?\. Post receives"),
)
# From memory to memory there are no headers, and so no R_Key.
LOCALLY = {"REM_ACCESS_ERR": "has refused it: the R_Key is not that of a region"}
# What else such a status brings: the receive that it took, requests that were flushed, and a peer that refuses.
RECEIVES = {"REM_OP_ERR": r"(LOC_PROT_ERR: .* of the receive names|LOC_QP_OP_ERR: the receive is malformed)",
            "REM_INV_REQ_ERR": "LOC_LEN_ERR: the peer's message is longer", "REM_ACCESS_ERR": "LOC_ACCESS_ERR: a WRITE with immediate"}
FLUSHED = r"\d+ requests? of QP 0x[0-9a-f]+ (was|were) flushed: "
REFUSES = re.compile(FLUSHED + r"it has refused a request of its peer \((invalid request|access error)\), which ends both$")
BEHIND = re.compile(FLUSHED + r"wr \d+ failed before$")


def wanted(status, text, local):
    for of, pattern, words in REASONS:
        if of == status and re.search(pattern, text):
            return local and LOCALLY.get(status) or words
    return None


def wrong(status, text, said, local):
    """What is wrong with what is said of a cause; nothing where all is well."""
    if status == "SUCCESS":
        return said
    words = wanted(status, text, local)
    if words is None:
        return "no rule is named in the table"
    own = [one for one in said if re.match(rf"wr 1 of QP 0x[0-9a-f]+ \([A-Z_]+(, \d+ B)?\) ended with {status}: ", one)]
    if len(own) != 1 or not re.search(words, own[0]):
        return f"{own} and not {words}"
    receive = re.compile(rf"wr \d+ of QP 0x[0-9a-f]+ \(RECV\w*\) ended with {RECEIVES.get(status, '(?!)')}")
    rest = [one for one in said if one not in own and not BEHIND.match(one) and not receive.match(one)
            and not (status.startswith("REM_") and REFUSES.match(one))]
    return rest or (None if any(map(BEHIND.match, said)) else "nothing is said of those behind it")


@scenario("trace.causes", 240, rxe="the events are ferroce's")
def causes(report):
    """Each cause of an error that verbs_cases provokes, by both ways: `ferroce trace why` says what it was, and nothing else."""
    bad, fired = [], Counter()
    for local in (True, False):
        for family in cases("errors"):
            with loop(local) as end, recording():
                write(f"{BUFFER}/buffer_size_kb", KIB_PER_CPU)
                judge(report, run_program(f"table-{family.name}", end, seconds=family.seconds, FERROCE_TRACE_MARKER=f"{BUFFER}/trace_marker"))
                with open(f"{BUFFER}/trace", encoding="utf-8") as f:
                    text = f.read()
            written = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", text)
            require(written[1] == written[2], f"{family.name}: of {written[2]} events the buffer has kept {written[1]}")
            for _, status, about, said in provoked(text):
                fired[status, wanted(status, about, local)] += 1
                if fault := wrong(status, about, said, local):
                    bad.append(f"{'memory' if local else 'packets'}, {status}: {about}: {fault}")
                    say(bad[-1])
    for (status, words), count in sorted(fired.items(), key=str):
        report.note(f"{count} x {status}: {words or 'nothing to say'}")
    unused = {(status, words) for status, _, words in REASONS} - fired.keys()
    require(not unused, f"rules that nothing has provoked: {unused}")
    require(not bad, f"{len(bad)} of {sum(fired.values())} causes are explained wrongly, the first: {bad[:1]}")
