# SPDX-License-Identifier: GPL-2.0
"""What the words of the command `ferroce` do, `ferroce trace` aside."""
