#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Builds and installs on the machine itself, for people with their own kernel. Needs no Python.
# Takes KDIR, KERNELRELEASE, DESTDIR, PROVIDER and optionally RUSTC, BINDGEN, MODULE from the environment.
set -eu

die()
{
	echo "ferroce: $*" >&2
	exit 1
}

config()
{
	sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$KDIR/.config"
}

need_tool()
{
	command -v "$1" >/dev/null 2>&1 || die "$1 is not installed; on Debian: apt-get install $2"
}

preflight_kernel()
{
	[ -d "$KDIR" ] || die "KDIR=$KDIR is no folder; name the prepared tree of the kernel the module is for"
	[ -f "$KDIR/Makefile" ] || die "KDIR=$KDIR is no kernel tree: it has no Makefile"
	[ -f "$KDIR/.config" ] ||
		die "KDIR=$KDIR has no .config: copy the kernel's (/boot/config-...) there and run make prepare modules_prepare"
	[ "$(config CONFIG_RUST)" = y ] ||
		die "this kernel is built without CONFIG_RUST and cannot load Rust modules; take one with it, such as" \
			"Debian's from trixie-backports (7.2 or later)"
	[ "$(config CONFIG_MODULES)" = y ] || die "this kernel is built without CONFIG_MODULES"
	case "$(config CONFIG_INFINIBAND)" in
	y | m) ;;
	*) die "this kernel is built without CONFIG_INFINIBAND: there is no RDMA core to register a device with" ;;
	esac
	need_tool make make
	need_tool "${RUSTC:-rustc}" rustc
	need_tool "${BINDGEN:-bindgen}" bindgen
	if [ -n "${LLVM:-}" ]; then need_tool clang clang; else need_tool "${CC:-gcc}" gcc; fi
	want=$(config CONFIG_RUSTC_VERSION_TEXT)
	have=$("${RUSTC:-rustc}" --version 2>/dev/null) || die "${RUSTC:-rustc} --version fails: is a toolchain installed?"
	# Distributions add their own words in brackets: the number and the commit decide.
	[ "${want%% (built*}" = "${have%% (built*}" ] ||
		die "the kernel was built with $want, and ${RUSTC:-rustc} here is $have: its metadata can be read by the" \
			"same compiler only; install that one or name it with RUSTC="
	for f in libcore libkernel libbindings libffi; do
		[ -f "$KDIR/rust/$f.rmeta" ] ||
			die "KDIR=$KDIR lacks rust/$f.rmeta (Debian's headers package ships none): unpack the kernel's" \
				"source, copy .config and Module.symvers from the headers, run make prepare modules_prepare" \
				"there, and name that tree"
	done
	[ -f "$KDIR/include/generated/autoconf.h" ] && [ -f "$KDIR/scripts/mod/modpost" ] ||
		die "KDIR=$KDIR is not prepared: run make prepare modules_prepare there"
	[ -f "$KDIR/Module.symvers" ] ||
		die "KDIR=$KDIR has no Module.symvers: copy it from the kernel's headers package, or build the kernel"
	[ -f rust/Kbuild ] || die "rust/Kbuild is missing: this is not a whole checkout"
}

# What one kernel's build left does for no other.
forget_other_kernel()
{
	now="$(cd "$KDIR" && pwd) $(cksum <"$KDIR/.config")"
	if [ -f build/kernel ] && [ "$(cat build/kernel)" != "$now" ]; then
		clean_module
	fi
	mkdir -p build
	echo "$now" >build/kernel
}

clean_module()
{
	find rust \( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' -o -name '.*.cmd' -o -name '.*.d' \
		-o -name '*.rmeta' -o -name '*.rsi' -o -name '*.i' -o -name '*.s' -o -name '*.symversions' \
		-o -name '*_generated.rs' -o -name 'modules.order' \) -type f -delete
	rm -f Module.symvers modules.order .modules.order.cmd .Module.symvers.cmd
}

modules()
{
	forget_other_kernel
	set -- -C "$KDIR" M="$PWD"
	[ -z "${KERNELRELEASE:-}" ] || set -- "$@" KERNELRELEASE="$KERNELRELEASE"
	${KMAKE:-make} --no-print-directory "$@" modules
	[ -f rust/ferroce.ko ] || die "the build made no rust/ferroce.ko"
}

provider()
{
	[ -f userspace-provider/Cargo.toml ] || die "userspace-provider is missing: this is not a whole checkout"
	if ! command -v "${CARGO:-cargo}" >/dev/null 2>&1; then
		if [ -n "${KDIR:-}" ] || [ ! -x "$(command -v "$1")" ]; then
			die "cargo is not installed; on Debian: apt-get install cargo"
		fi
		exec "$1" -m tests.lab provider --copy "$PROVIDER"
	fi
	need_tool cc gcc
	CARGO_TARGET_DIR=build/cargo "${CARGO:-cargo}" build --release --locked -p ferroce-provider || die \
		"the provider was not built; if crates could not be fetched, this machine needs the network once" \
		"(or run cargo fetch where it has one)"
	mkdir -p "$(dirname "$PROVIDER")"
	cp build/cargo/release/libferroce.so "$PROVIDER"
}

preflight_install()
{
	[ -n "${KDIR:-}" ] || die "make install needs KDIR=, the prepared tree of the kernel the module is for"
	[ -n "${KERNELRELEASE:-}" ] ||
		die "make install needs KERNELRELEASE=, the name the kernel goes by (uname -r on the running one)"
}

# The private ABIs of libibverbs that the provider serves (userspace-provider/src/abi.rs).
ABIS="34 57 59 64 65"

# The file of the libibverbs that programs load; nothing where there is none.
libibverbs()
{
	case $(uname -m) in
	x86_64) machine=x86-64 ;;
	aarch64) machine=AArch64 ;;
	*) machine= ;;
	esac
	PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null |
		sed -n "s/^[[:space:]]*libibverbs\.so\.1 (.*$machine.*) => //p" | head -n 1
}

# Where libibverbs looks for providers: its own bytes say it. On Debian the folder is known without one.
provider_dir()
{
	library=$(libibverbs)
	if [ -n "$library" ]; then
		# What stands before it may be no text, and end without a zero.
		folder=$(LC_ALL=C tr -c '[:print:]' '\n' <"$library" | sed -n 's,^\(/.*\)/lib%s-rdmav[0-9]*\.so$,\1,p' | head -n 1)
		[ -z "$folder" ] || { echo "$folder"; return; }
	fi
	triplet=$(gcc -print-multiarch 2>/dev/null || true)
	[ -n "$triplet" ] || die "there is no libibverbs here, which would name the folder of its providers: install it, or" \
		"name the folder with PROVIDERDIR= (/usr/lib64/libibverbs on Fedora, /usr/lib/libibverbs on Arch)"
	echo "/usr/lib/$triplet/libibverbs"
}

install_provider()
{
	DESTDIR=${DESTDIR:-}
	[ -n "${PROVIDERDIR:-}" ] || PROVIDERDIR=$(provider_dir)
	[ -f "$PROVIDER" ] || die "$PROVIDER is not there: make provider first"
	# libibverbs takes the file named after its own private ABI; the provider serves all of these.
	for abi in $ABIS; do
		install -D -m 644 "$PROVIDER" "$DESTDIR$PROVIDERDIR/libferroce-rdmav$abi.so"
	done
	# With its folder: a libibverbs that came in a Python wheel looks for providers in another one.
	install -d "$DESTDIR/etc/libibverbs.d"
	echo "driver $PROVIDERDIR/libferroce" >"$DESTDIR/etc/libibverbs.d/ferroce.driver"
	chmod 644 "$DESTDIR/etc/libibverbs.d/ferroce.driver"
	install -D -m 644 userspace-provider/76-ferroce.rules "$DESTDIR/usr/lib/udev/rules.d/76-ferroce.rules"
}

install_all()
{
	: "${KERNELRELEASE:?}" "${MODULE:=rust/ferroce.ko}"
	[ -f "$MODULE" ] || die "$MODULE is not there: make modules first"
	install_provider
	install -D -m 644 "$MODULE" "$DESTDIR/lib/modules/$KERNELRELEASE/updates/ferroce.ko"
	install -D -m 755 command/ferroce "$DESTDIR/usr/bin/ferroce"
	install -d "$DESTDIR/usr/share/ferroce/admin" "$DESTDIR/usr/share/ferroce/trace"
	install -m 644 command/admin/*.py "$DESTDIR/usr/share/ferroce/admin/"
	install -m 644 command/trace/*.py command/trace/page.css command/trace/page.js "$DESTDIR/usr/share/ferroce/trace/"
	install -D -m 644 command/ferroce@.service "$DESTDIR/usr/lib/systemd/system/ferroce@.service"
	for section in 7 8; do
		install -D -m 644 command/ferroce.$section "$DESTDIR/usr/share/man/man$section/ferroce.$section"
	done
	index_modules
	echo "installed for $KERNELRELEASE${DESTDIR:+ under $DESTDIR}"
}

# Into a package's staging folder there is nothing to index; into a system there is.
index_modules()
{
	if [ -f "$DESTDIR/lib/modules/$KERNELRELEASE/modules.order" ]; then
		if [ -n "$DESTDIR" ]; then set -- -b "$DESTDIR"; else set --; fi
		"${DEPMOD:-depmod}" "$@" "$KERNELRELEASE"
	fi
}

# What install and install-provider bring; the module of one kernel where KERNELRELEASE names it. Links that are kept
# stay for a later installation.
uninstall()
{
	DESTDIR=${DESTDIR:-}
	[ -n "${PROVIDERDIR:-}" ] || PROVIDERDIR=$(provider_dir)
	if dpkg-query --root="${DESTDIR:-/}" -W -f '${Status}\n' ferroce ferroce-provider 2>/dev/null | grep -q ' installed$'; then
		die "ferroce is here by its packages: apt remove ferroce ferroce-provider"
	fi
	for abi in $ABIS; do
		rm -f "$DESTDIR$PROVIDERDIR/libferroce-rdmav$abi.so"
	done
	rm -f "$DESTDIR/etc/libibverbs.d/ferroce.driver" "$DESTDIR/usr/lib/udev/rules.d/76-ferroce.rules" \
		"$DESTDIR/usr/bin/ferroce" \
		"$DESTDIR/usr/lib/systemd/system/ferroce@.service" "$DESTDIR/usr/share/man/man7/ferroce.7" \
		"$DESTDIR/usr/share/man/man8/ferroce.8"
	rm -rf "$DESTDIR/usr/share/ferroce"
	if [ -n "${KERNELRELEASE:-}" ]; then
		rm -f "$DESTDIR/lib/modules/$KERNELRELEASE/updates/ferroce.ko"
		index_modules
	else
		for file in "$DESTDIR"/lib/modules/*/updates/ferroce.ko; do
			[ ! -f "$file" ] || echo "ferroce: $file stays; name its kernel with KERNELRELEASE= to remove it" >&2
		done
	fi
}

case "$1" in
preflight-kernel) preflight_kernel ;;
preflight-install) preflight_install ;;
modules) modules ;;
provider) provider "${2:-python3}" ;;
install) install_all ;;
install-provider)
	install_provider
	echo "installed the provider in $DESTDIR$PROVIDERDIR"
	;;
uninstall) uninstall ;;
clean)
	clean_module
	rm -rf build target
	;;
*) die "native.sh: unknown word $1" ;;
esac
