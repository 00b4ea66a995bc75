# SPDX-License-Identifier: GPL-2.0
"""The examples that a student reads first (tests/examples) do what they say."""

from tests.guest import flavour
from tests.guest.fabric import WAYS, each_way, loop, pair
from tests.guest.programs import program, run_both
from tests.guest.scenario import add, command, require, scenario

# Name, TCP port, what each side prints of the other's message.
PAIRS = (
    ("rc", 18520, ("it says: Hello by SEND", "it says: and this by RDMA READ")),
    ("ud", 18521, (" bytes: Hello by datagram", " bytes: Hello back")),
)
# In the order of statuses.c: see Documentation/verbs.md.
VENDOR_ERR = [0, 8, 0x161, 1, 1, 1, 1, 0x162, 0x163, 3, 4]


def meeting(name, port, said):
    """A scenario: both sides of an example, on one device and between two."""
    def on(ends):
        argv = [[program(f"example_{name}"), end.dev, str(end.gid())] for end in ends]
        for out, words in zip(run_both(argv[0], [*argv[1], ends[0].tcp], ends, port), said):
            require(words in out, f"no \"{words}\" in: {out}")

    def run(report):
        with loop() as end:
            each_way(report, end, list(WAYS), lambda _: on((end, end)))
        with pair() as ends:
            on(ends)

    return run


for _name, _port, _said in PAIRS:
    add(f"examples.{_name}", 60, f"tests/examples/{_name}.c, both sides, on one device and between two",
        meeting(_name, _port, _said))


@scenario("examples.statuses", 30)
def statuses(report):
    """tests/examples/statuses.c provokes each status of a completion that it explains."""
    with loop(True) as end:
        done = command([program("example_statuses"), end.dev, str(end.gid())])
    lines = done.stdout.splitlines()
    for line in lines:
        report.note(line)
    require(len(lines) >= 11, "it explains less than eleven")
    if flavour.current().is_ferroce:
        values = [int(line.split("vendor_err ")[1].split()[0], 0) for line in lines]
        require(values == VENDOR_ERR, f"vendor_err: {values}, not {VENDOR_ERR}")
