# SPDX-License-Identifier: GPL-2.0
"""A disk that answers when it is let (the kernel's nbd, with its server here): who touches a page of it waits so long."""

import fcntl
import os
import socket
import struct
import threading
from contextlib import contextmanager

from tests.guest.fabric import wait_until
from tests.guest.scenario import Skipped, command

# include/uapi/linux/nbd.h
SET_SOCK, SET_BLKSIZE, DO_IT, CLEAR_SOCK, SET_SIZE_BLOCKS, DISCONNECT = 0xab00, 0xab01, 0xab03, 0xab04, 0xab07, 0xab08
REQUEST, REQUEST_MAGIC = struct.Struct(">IIQQI"), 0x25609513
REPLY, REPLY_MAGIC = struct.Struct(">II8s"), 0x67446698
END = 2
BLOCK, SIZE = 4096, 1 << 23
# What looks for partitions and file systems reads the ends of a disk.
SLOW = range(SIZE // 4, SIZE // 2)
PATH = "/dev/nbd0"


class Disk:
    """The server. All is zeros; what is in SLOW comes when `let` is set."""

    def __init__(self, sock):
        self.sock = sock
        self.asked, self.let = threading.Event(), threading.Event()

    def take(self, size):
        """So many bytes of the kernel's, or nothing when it has closed."""
        found = b""
        while len(found) < size:
            part = self.sock.recv(size - len(found))
            if not part:
                return None
            found += part
        return found

    def serve(self):
        """Answers until the kernel says that it is the end."""
        while request := self.take(REQUEST.size):
            magic, kind, handle, start, size = REQUEST.unpack(request)
            assert magic == REQUEST_MAGIC
            if kind & 0xffff == END:
                # DO_IT waits for it.
                self.sock.shutdown(socket.SHUT_RDWR)
                return
            assert kind & 0xffff == 0, "nobody writes"
            # The kernel reads around what is touched.
            if start < SLOW.stop and start + size > SLOW.start:
                self.asked.set()
                self.let.wait()
            self.sock.sendall(REPLY.pack(REPLY_MAGIC, 0, struct.pack(">Q", handle)) + bytes(size))


@contextmanager
def slow_disk():
    """The disk at PATH. At the end it answers what still waits."""
    if command(["modprobe", "nbd", "nbds_max=1", "max_part=0"], ok=None).returncode:
        raise Skipped("a kernel without nbd")
    kernel, ours = socket.socketpair()
    disk = Disk(ours)
    device = os.open(PATH, os.O_RDWR)
    try:
        for what, value in ((SET_BLKSIZE, BLOCK), (SET_SIZE_BLOCKS, SIZE // BLOCK), (SET_SOCK, kernel.fileno())):
            fcntl.ioctl(device, what, value)
        threads = [threading.Thread(target=disk.serve), threading.Thread(target=fcntl.ioctl, args=(device, DO_IT))]
        for thread in threads:
            thread.start()
        try:
            yield disk
        finally:
            disk.let.set()
            fcntl.ioctl(device, DISCONNECT)
            for thread in threads:
                thread.join()
    finally:
        fcntl.ioctl(device, CLEAR_SOCK)
        os.close(device)
        kernel.close()
        ours.close()
        wait_until("nbd goes", lambda: command(["modprobe", "-r", "nbd"], ok=None).returncode == 0)
