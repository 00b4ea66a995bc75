# SPDX-License-Identifier: GPL-2.0
"""The examples that a student reads first (tests/examples) do what they say."""

from tests.guest.fabric import both_ends, loop
from tests.guest.programs import program, run_both
from tests.guest.scenario import add, command, require, scenario

# Name, TCP port, what each side prints of the other's message.
PAIRS = (
    ("rc", 18520, ("it says: Hello by SEND", "it says: and this by RDMA READ")),
    ("ud", 18521, (" bytes: Hello by datagram", " bytes: Hello back")),
)


def meeting(name, port, said, where, local):
    """A scenario: both sides of an example."""
    def run(_report):
        with both_ends(where, local) as ends:
            argv = [[program(f"example_{name}"), end.dev, str(end.gid())] for end in ends]
            outs = run_both(argv[0], [*argv[1], ends[0].tcp], ends, port)
        for out, words in zip(outs, said):
            require(words in out, f"no \"{words}\" in: {out}")

    return run


for _name, _port, _said in PAIRS:
    for _path, _where, _local in (("local", "loop", True), ("wire", "loop", False), ("veth", "pair", None)):
        add(f"examples.{_name}.{_path}", 30, f"tests/examples/{_name}.c, both sides, {_path}",
            meeting(_name, _port, _said, _where, _local))


@scenario("examples.statuses", 30)
def statuses(report):
    """tests/examples/statuses.c provokes each status of a completion that it explains."""
    with loop(True) as end:
        done = command([program("example_statuses"), end.dev, str(end.gid())])
    for line in done.stdout.splitlines():
        report.note(line)
    require(len(done.stdout.splitlines()) >= 11, "it explains less than eleven")
