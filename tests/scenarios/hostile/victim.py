# SPDX-License-Identifier: GPL-2.0
"""victim.py DEVICE GID_INDEX ATTACKER_GID OTHER_GID PORT: the victim of hostile packets. It has memory of which every byte is
known and queue pairs that a stranger attacks, and does what the generator asks over TCP, line by line:

  make N KIND           qp INDEX QPN PEER_QPN RQ_PSN SQ_PSN WINDOW, of each; the key of its own window, or 0
  post INDEX OP LEN     send or read, out of or into the region "sends"
  states                state INDEX STATE RQ_PSN, of each
  completions           wc INDEX WR_ID STATUS BYTES, of each since it was asked last
  events                event TYPE, as above
  allow NAME OFFSET LEN lets these bytes of a region change
  check                 changed ..., if a byte is not what it was and may not differ
  dereg NAME            deregisters a region; rereg NAME brings it back, with another key
  renew                 all memory as it was, and nothing may change

Each answer ends with the line "done"."""

import ctypes
import ipaddress
import mmap
import os
import random
import select
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

DEPTH, RECEIVE, RECEIVES, QKEY = 16, 1024, 4, 0x2468ace0
# A place for each region, with as much forbidden memory behind it. Regions begin and end within pages, so that the rest of
# the page is a guard as well.
PLACE, ODD, REGION = 128 * 1024, 1032, 20000
REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
LOCAL, ALL = e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_LOCAL_WRITE | REMOTE
TYPES = {"uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
KINDS = {"rts", "rts-no-receives", "rts-no-rights", "rts-no-reads", "rts-stranger", "rtr", "init", "reset", "err",
         "rts-shared-receives", "rts-flush", "rts-window", "uc", "uc-no-receives", "uc-no-rights", "uc-init", "uc-err",
         "ud", "ud-no-receives", "ud-init", "ud-err"}
# As in tests/guest/scenario.py, which this program does not see.
PATIENCE = int(os.environ.get("FERROCE_PATIENCE", "4"))


class Area:
    """A region of the victim, or a window: of type 1, which all queue pairs of the domain may use, of type 2B of one that is
    not attacked, or one of type 2B of each queue pair. The region around a window is larger and gives no rights to peers."""

    def __init__(self, name, access, readable, window=None):
        self.name, self.access, self.readable, self.window = name, access, readable, window
        self.at = self.mr = self.mw = None

    def close(self):
        for held in filter(None, (self.mw, self.mr)):
            held.close()
        self.mw = self.mr = None


AREAS = {area.name: area for area in (
    Area("rw", ALL | e.IBV_ACCESS_FLUSH_GLOBAL, True), Area("ro", e.IBV_ACCESS_REMOTE_READ, True),
    Area("wo", LOCAL | e.IBV_ACCESS_REMOTE_WRITE, False), Area("local", LOCAL, False), Area("foreign", ALL, False),
    Area("stale", ALL, False),
    # Readable until the generator has it deregistered; after that a byte of it is not secret, only gone.
    Area("volatile", ALL, True), Area("receives", LOCAL, False), Area("sends", LOCAL, True),
    Area("mw-rw", REMOTE, True, "domain"), Area("mw-ro", e.IBV_ACCESS_REMOTE_READ, True, "domain"),
    # It was bound once, and has gone.
    Area("mw-stale", REMOTE, False, "domain"), Area("mw-foreign", REMOTE, False, "another"),
    Area("mw-own", REMOTE, True, "each"))}


class Memory:
    """What a stranger may read has bytes below 128, everything else bytes from 128 on: so one look at a packet tells whether
    it carries what it must not."""

    def __init__(self):
        size = PLACE * (len(AREAS) + 1)
        self.bytes = mmap.mmap(-1, size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))
        noise = random.Random(1).randbytes(size)
        shown = noise.translate(bytes(byte & 0x7f for byte in range(256)))
        self.pristine = bytearray(noise.translate(bytes(byte | 0x80 for byte in range(256))))
        for number, area in enumerate(AREAS.values()):
            area.at = PLACE * number + ODD
            if area.readable:
                self.pristine[area.at:area.at + REGION] = shown[area.at:area.at + REGION]
        self.may_change = []
        self.renew()

    def renew(self):
        """Everything as it was in the beginning."""
        self.bytes[:] = bytes(self.pristine)
        self.may_change.clear()

    def changed(self):
        """The first byte that is not what it was and may not differ, in words."""
        seen = bytearray(self.bytes)
        for begin, end in self.may_change:
            seen[begin:end] = self.pristine[begin:end]
        if seen == self.pristine:
            return []
        at = next(at for at, byte in enumerate(seen) if byte != self.pristine[at])
        names = [f"{area.name} byte {at - area.at}" for area in AREAS.values() if area.at <= at < area.at + REGION]
        return [f"changed {(names or [f'between regions: {at}'])[0]} is {seen[at]:02x}, was {self.pristine[at]:02x}"]


class QueuePair:
    """A queue pair under attack; the words of its kind say what is special about it."""

    def __init__(self, victim, kind):
        own = victim.own
        self.srq = SRQ(own, SrqInitAttr(SrqAttr(max_wr=DEPTH, max_sge=1))) if "shared" in kind else None
        self.mw = MW(own, e.IBV_MW_TYPE_2) if "window" in kind else None
        self.type = TYPES.get(kind[:2], e.IBV_QPT_RC)
        self.qp = QP(own, QPInitAttr(qp_type=self.type, scq=victim.cq, rcq=victim.cq, srq=self.srq, cap=QPCap(DEPTH, DEPTH, 1, 1, 0)))
        self.psns = 0, 0

    def close(self):
        for held in filter(None, (self.mw, self.qp, self.srq)):
            held.close()

    def to(self, state, attr, mask=0):
        attr.qp_state = state
        self.qp.modify(attr, e.IBV_QP_STATE | mask)

    def connect(self, victim, kind, peer_qpn):
        """To the state of its kind, with its receives."""
        words = kind.split("-")
        rc, ud = self.type == e.IBV_QPT_RC, self.type == e.IBV_QPT_UD
        attr = QPAttr(path_mtu=e.IBV_MTU_256)
        self.to(e.IBV_QPS_RESET, attr)
        if "reset" in words:
            return
        access = 0 if ud or kind.endswith("no-rights") else REMOTE if rc else e.IBV_ACCESS_REMOTE_WRITE
        attr.qp_access_flags = access | (e.IBV_ACCESS_FLUSH_GLOBAL if "flush" in words else 0)
        attr.port_num, attr.qkey, attr.dest_qp_num = 1, QKEY, peer_qpn
        attr.rq_psn, attr.sq_psn = self.psns
        attr.max_rd_atomic, attr.max_dest_rd_atomic = 4, 0 if kind.endswith("no-reads") else 4
        # Without a timeout nothing is sent that the generator has not provoked.
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 0, 2, 2
        route = GlobalRoute(dgid=victim.gids["stranger" in words], sgid_index=victim.gid_index, hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.to(e.IBV_QPS_INIT, attr, e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | (e.IBV_QP_QKEY if ud else e.IBV_QP_ACCESS_FLAGS))
        place = AREAS["receives"]
        for n in range(0 if kind.endswith("no-receives") else RECEIVES):
            sge = SGE(victim.memory.base + place.at + RECEIVE * n, RECEIVE, place.mr.lkey)
            (self.srq or self.qp).post_recv(RecvWR(wr_id=1000 + n, num_sge=1, sg=[sge]))
        if "init" in words:
            return
        self.to(e.IBV_QPS_RTR, attr, (0 if ud else e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN)
                | (e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER if rc else 0))
        if "rtr" in words:
            return
        self.to(e.IBV_QPS_RTS, attr, e.IBV_QP_SQ_PSN | (
            e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY | e.IBV_QP_MAX_QP_RD_ATOMIC if rc else 0))
        if "err" in words:
            self.to(e.IBV_QPS_ERR, attr)


class Victim:
    """The device and all that is attacked of it. The commands are its methods, which yield the lines of the answer."""

    def __init__(self, device, gid_index, *gids):
        self.context, self.gid_index = Context(name=device), int(gid_index)
        # Nobody waits for events.
        fds = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        (self.events_fd,) = (int(fd.rsplit("/", 1)[1]) for fd in fds if os.path.exists(fd) and "infinibandevent" in os.readlink(fd))
        # In eight words of hexadecimal digits, also an IPv4 address.
        self.gids = [GID(ipaddress.IPv6Address(gid).packed.hex(":", 2)) for gid in gids]
        self.own, self.foreign = PD(self.context), PD(self.context)
        self.cq = CQ(self.context, 4096)
        self.memory, self.qps, self.plain, self.round = Memory(), [], None, 0
        # One that is not attacked, and sends nothing but what binds windows.
        self.helper = QueuePair(self, "rts")
        self.helper.connect(self, "rts-no-receives", 0x600000)

    def bind(self, area, queue, mw):
        """Binds a window of type 2B to the bytes of an area, by the queue pair's own send queue; its key."""
        wr = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
        wr.set_bind_wr(mw, self.bind_info(area))
        queue.qp.post_send(wr)
        self.succeeded()
        return wr.rkey

    def bind_info(self, area):
        """What a window of an area is bound to."""
        return MWBindInfo(area.mr, self.memory.base + area.at, REGION, area.access)

    def succeeded(self):
        """The next completion is there, and a success."""
        found, end = [], time.monotonic() + 20 * PATIENCE
        while not found:
            if time.monotonic() > end:
                raise RuntimeError("a binding does not complete")
            found = self.cq.poll(1)[1]
        if found[0].status != e.IBV_WC_SUCCESS:
            raise RuntimeError(f"a binding: status {found[0].status}")

    def rereg(self, name):
        """Registers a region, or binds a window."""
        area = AREAS[name]
        at, key = self.memory.base + area.at, 0
        if not area.window:
            area.mr = MR(self.foreign if name == "foreign" else self.own, REGION, area.access, address=at)
            key = area.mr.rkey
        else:
            area.mr = MR(self.own, PLACE // 2, LOCAL | e.IBV_ACCESS_MW_BIND, address=at - ODD)
        if area.window == "domain":
            area.mw = MW(self.own, e.IBV_MW_TYPE_1)
            self.helper.qp.bind_mw(area.mw, MWBind(self.bind_info(area), e.IBV_SEND_SIGNALED))
            self.succeeded()
            key = area.mw.rkey
        elif area.window == "another":
            area.mw = MW(self.own, e.IBV_MW_TYPE_2)
            key = self.bind(area, self.helper, area.mw)
        yield f"mr {name} {at} {REGION} {key}"

    def dereg(self, name):
        AREAS[name].close()
        return ()

    def hello(self):
        """All regions, of which some go again."""
        for name in AREAS:
            yield from self.rereg(name)
        self.dereg("stale")
        # The region around it stays.
        AREAS["mw-stale"].mw.close()
        AREAS["mw-stale"].mw = None

    def make(self, count, kind):
        """Queue pairs of a kind in place of those there were."""
        if kind not in KINDS:
            raise ValueError(f"no kind {kind}")
        count = int(count)
        self.round += 1
        # Those of one type and with nothing of their own are used again.
        plain = None if {"shared", "window"} & set(kind.split("-")) else TYPES.get(kind[:2], e.IBV_QPT_RC)
        keeps = count if plain == self.plain is not None else 0
        while len(self.qps) > keeps:
            self.qps.pop().close()
        self.plain = plain
        while len(self.qps) < count:
            self.qps.append(QueuePair(self, kind))
        # Those that are used again complete nothing when they are reset; what they completed before goes.
        list(self.completions())
        for index, queue in enumerate(self.qps):
            # Numbers of the peer and PSNs differ, so that an answer says whose it is; some wrap soon.
            at = 0xfffffd + 0x31337 * (index + 7 * self.round)
            queue.psns = at & 0xffffff, (at + 0x456789) & 0xffffff
            queue.connect(self, kind, 0x700000 + index)
            window = self.bind(AREAS["mw-own"], queue, queue.mw) if queue.mw else 0
            yield f"qp {index} {queue.qp.qp_num} {0x700000 + index} {queue.psns[0]} {queue.psns[1]} {window}"
        list(self.completions())
        list(self.events())

    def post(self, index, op, length):
        """A queue pair asks something of its peer."""
        opcode = {"send": e.IBV_WR_SEND, "read": e.IBV_WR_RDMA_READ}[op]
        sge = SGE(self.memory.base + AREAS["sends"].at, int(length), AREAS["sends"].mr.lkey)
        wr = SendWR(wr_id=int(index), opcode=opcode, num_sge=1, sg=[sge], send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(0xfeed, 0x123456789000)
        self.qps[int(index)].qp.post_send(wr)
        return ()

    def states(self):
        for index, queue in enumerate(self.qps):
            attr, _ = queue.qp.query(e.IBV_QP_STATE | e.IBV_QP_RQ_PSN | e.IBV_QP_SQ_PSN)
            yield f"state {index} {attr.qp_state} {attr.rq_psn}"

    def completions(self):
        numbers = {queue.qp.qp_num: index for index, queue in enumerate(self.qps)}
        while found := self.cq.poll(64)[1]:
            for wc in found:
                received = wc.status == e.IBV_WC_SUCCESS and wc.opcode & e.IBV_WC_RECV
                yield f"wc {numbers[wc.qp_num]} {wc.wr_id} {wc.status} {wc.byte_len if received else 0}"

    def events(self):
        while select.select([self.events_fd], [], [], 0)[0]:
            event = self.context.get_async_event()
            yield f"event {event.event_type}"
            event.ack()

    def allow(self, name, offset, length):
        if not 0 <= int(offset) <= int(offset) + int(length) <= REGION:
            raise ValueError(f"bytes outside of {name}")
        begin = AREAS[name].at + int(offset)
        self.memory.may_change.append((begin, begin + int(length)))
        return ()

    def check(self):
        return self.memory.changed()

    def renew(self):
        self.memory.renew()
        return ()

    def close(self):
        for held in (*self.qps, *AREAS.values(), self.helper, self.cq, self.own, self.foreign, self.context):
            held.close()


def main(device, gid_index, attacker, other, port):
    """Serves one generator until it goes."""
    with socket.create_server(("", int(port))) as server:
        peer, _ = server.accept()
    with peer, peer.makefile("rw") as lines:
        try:
            victim = Victim(device, gid_index, attacker, other)
            words = ["hello"]
            while words:
                for line in getattr(victim, words[0])(*words[1:]):
                    lines.write(line + "\n")
                lines.write("done\n")
                lines.flush()
                words = lines.readline().split()
        except Exception as error:
            # The generator, which judges, is told too.
            lines.write(f"failed {type(error).__name__}: {error}\n")
            raise
    victim.close()
    print("ended")


main(*sys.argv[1:])
