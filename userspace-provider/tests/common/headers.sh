#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Makes a folder of include files out of an unpacked rdma-core source package, as its own build
# would: headers.sh SOURCE DESTINATION. The private headers are in no binary package.
set -eu
src=$1 dest=$2
[ -r "$src/libibverbs/driver.h" ] || { echo "headers.sh: no rdma-core source in $src" >&2; exit 1; }
mkdir -p "$dest/infiniband" "$dest/kernel-abi"
ln -sfn "$src/ccan" "$dest/ccan"
ln -sfn "$src/util" "$dest/util"
ln -sfn "$src/kernel-headers/rdma" "$dest/rdma"
for header in "$src"/libibverbs/*.h "$src"/kernel-headers/rdma/ib_user_ioctl_verbs.h; do
	ln -sf "$header" "$dest/infiniband/"
done
echo '#define HAVE_STATEMENT_EXPR 1' > "$dest/config.h"
python3 "$src/buildlib/make_abi_structs.py" \
	"$src/kernel-headers/rdma/ib_user_verbs.h" "$dest/kernel-abi/ib_user_verbs.h"
