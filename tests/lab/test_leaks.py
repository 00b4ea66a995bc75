# SPDX-License-Identifier: GPL-2.0
"""Tests of the judge of leaks: what is lost in every round is one, what others take now and then is none."""

import contextlib
import io
import unittest
from collections import Counter
from types import SimpleNamespace

from tests.guest.scenario import Failed
from tests.judges import leaks


def samples(*stocks):
    """Measurements ten rounds apart: KiB of areas by who has allocated them, and objects by cache."""
    return [(10 * i, SimpleNamespace(vmalloc=Counter(areas), objects=objects, exact={"pinned pages": 0}, kilobytes={}))
            for i, (areas, objects) in enumerate(stocks)]


def judged(*stocks):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            leaks.judge(samples(*stocks))
        except Failed as e:
            return str(e)
    return ""


class Kmemleak(unittest.TestCase):
    """What ib_core loses is told from what the driver does."""

    def test_by_the_stack_of_the_allocation(self):
        def reported(*functions):
            return "unreferenced object 0x7054fc80 (size 576):\n  backtrace:\n" + "".join(f"    {one}+0x54/0x110\n" for one in functions)

        tree = ("kmem_cache_alloc_noprof", "radix_tree_node_alloc", "radix_tree_insert", "uapi_add_get_elm", "uverbs_alloc_api")
        self.assertTrue(leaks.is_of_ib_core(reported(*tree)))
        self.assertTrue(leaks.is_of_ib_core(reported("kmem_cache_alloc_noprof", "dup_task_struct", "copy_process")))
        self.assertFalse(leaks.is_of_ib_core(reported("kmem_cache_alloc_noprof", "uapi_add_get_elm", "uverbs_alloc_api")))
        self.assertFalse(leaks.is_of_ib_core(reported("radix_tree_insert", "ferroce_link_add")))


class Slopes(unittest.TestCase):
    """A leak grows in each part of the rounds, in one place."""

    def test_a_ring_of_every_second_round(self):
        """The areas of one caller grow in both parts."""
        self.assertIn("areas of ring_new", judged(({"ring_new": 8}, {}), ({"ring_new": 28}, {}), ({"ring_new": 48}, {})))

    def test_a_worker_here_and_a_module_there(self):
        """In either part something grows, and nothing in both."""
        self.assertEqual("", judged(({"kernel_clone": 160}, {}), ({"kernel_clone": 180}, {}),
                                    ({"kernel_clone": 180, "unpurged": 80}, {})))
