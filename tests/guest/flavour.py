# SPDX-License-Identifier: GPL-2.0
"""Which driver the scenarios run on: ferroce, or the kernel's own rdma_rxe to judge the scenarios themselves."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Flavour:
    link_type: str
    module: str
    prefix: str

    @property
    def is_ferroce(self):
        """Scenarios about things only ferroce has ask this."""
        return self.link_type == "ferroce"


FERROCE = Flavour("ferroce", "ferroce", "fe")
RXE = Flavour("rxe", "rdma_rxe", "rx")


def current():
    """The flavour named by FERROCE_LINK_TYPE; ferroce when it is unset."""
    name = os.environ.get("FERROCE_LINK_TYPE", "ferroce")
    for flavour in (FERROCE, RXE):
        if flavour.link_type == name:
            return flavour
    raise SystemExit(f"FERROCE_LINK_TYPE={name}: only ferroce and rxe are known")
