# SPDX-License-Identifier: GPL-2.0
# What tutorials say of verbs, tried.
. Documentation/walks/lib.sh
build claims
left /tmp/claims fe0 1
