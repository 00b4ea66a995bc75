# SPDX-License-Identifier: GPL-2.0
# Each status of a completion, with its vendor_err.
. Documentation/walks/lib.sh
build statuses
left /tmp/statuses fe0 1 | sed 's,\(vendor_err 0x...\).*,\1,'
