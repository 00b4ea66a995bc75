# SPDX-License-Identifier: GPL-2.0
"""Management datagrams by stock libibumad, as perfquery of a subnet would send them, with the routing header that RoCE
needs."""

import ctypes
import ipaddress
import struct
from contextlib import contextmanager

from tests.guest.scenario import PATIENCE, command, require

MAD_LEN = 256
HEADERS = 64
QP1_QKEY = 0x80010000
PERFORMANCE, GET = 0x04, 0x01
# Attributes of the performance class.
CLASS_PORT_INFO, PORT_COUNTERS, PORT_COUNTERS_EXTENDED = 0x0001, 0x0012, 0x001d


class Address(ctypes.BigEndianStructure):
    """`struct ib_user_mad_hdr` of the kernel (rdma/ib_user_mad.h) behind its first five words, but that the index of the
    P_Key is in host order."""

    _fields_ = [("qpn", ctypes.c_uint32), ("qkey", ctypes.c_uint32), ("lid", ctypes.c_uint16), ("sl", ctypes.c_uint8),
                ("path_bits", ctypes.c_uint8), ("grh_present", ctypes.c_uint8), ("gid_index", ctypes.c_uint8),
                ("hop_limit", ctypes.c_uint8), ("traffic_class", ctypes.c_uint8), ("gid", ctypes.c_uint8 * 16),
                ("flow_label", ctypes.c_uint32), ("pkey_index", ctypes.c_uint16), ("reserved", ctypes.c_uint8 * 6)]


class Agent:
    """Asks for attributes of performance management."""

    def __init__(self, lib, port, agent, gid_index):
        self.lib, self.port, self.agent, self.gid_index = lib, port, agent, gid_index
        self.transactions = 0

    def get(self, address, attribute, port_select=1):
        """The answer to a Get from the device at an IPv6 address: the status, and the attribute's bytes."""
        buffer = ctypes.create_string_buffer(self.lib.umad_size() + MAD_LEN)
        to = Address.from_buffer(buffer, 5 * 4)
        to.qpn, to.qkey, to.grh_present, to.gid_index, to.hop_limit = 1, QP1_QKEY, 1, self.gid_index, 64
        to.gid[:] = ipaddress.IPv6Address(address).packed
        self.transactions += 1
        mad = bytearray(MAD_LEN)
        mad[:24] = struct.pack(">BBBBHHQHHI", 1, PERFORMANCE, 1, GET, 0, 0, self.transactions, attribute, 0, 0)
        mad[HEADERS + 1] = port_select
        buffer[self.lib.umad_size():] = bytes(mad)
        sent = self.lib.umad_send(self.port, self.agent, buffer, MAD_LEN, 2000 * PATIENCE, 3)
        require(sent == 0, f"umad_send: {sent}")
        length = ctypes.c_int(MAD_LEN)
        got = self.lib.umad_recv(self.port, buffer, ctypes.byref(length), 10000 * PATIENCE)
        require(got == self.agent and length.value == MAD_LEN, f"umad_recv: {got}, {length.value} bytes")
        require(self.lib.umad_status(buffer) == 0, f"no answer: status {self.lib.umad_status(buffer)}")
        answer = buffer[self.lib.umad_size():]
        _, _, _, method, status, _, transaction, what, _, _ = struct.unpack_from(">BBBBHHQHHI", answer)
        # The kernel keeps the upper half for the number of the agent.
        require((method, what, transaction & 0xffffffff) == (0x81, attribute, self.transactions),
                f"answered method {method:#x} of attribute {what:#x}, transaction {transaction:#x}")
        return status, answer[HEADERS:]


@contextmanager
def performance_agent(dev, gid_index):
    """An agent on a port; ib_umad goes with it."""
    command(["modprobe", "ib_umad"])
    lib = ctypes.CDLL("libibumad.so.3")
    require(lib.umad_init() == 0, "umad_init")
    port = lib.umad_open_port(dev.encode(), 1)
    require(port >= 0, f"umad_open_port of {dev}: {port}")
    try:
        agent = lib.umad_register(port, PERFORMANCE, 1, 0, None)
        require(agent >= 0, f"umad_register: {agent}")
        yield Agent(lib, port, agent, gid_index)
        lib.umad_unregister(port, agent)
    finally:
        lib.umad_close_port(port)
        lib.umad_done()
        command(["modprobe", "-r", "ib_umad"])
