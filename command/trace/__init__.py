# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace`: what a capture of RoCEv2 shows, as a ladder. See Documentation/tracing.md."""
