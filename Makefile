# SPDX-License-Identifier: GPL-2.0
#
# make shell        opens a prompt in a virtual machine with two RDMA devices; make shell DIR=folder shows it that one
# make run CMD=...  runs a command there instead
# make um           opens a prompt in the fast guest, a kernel that runs as a program; make um CMD=... runs a command there
# make um-debug     the same with a kernel full of checks
# make trace EXAMPLE=rnr  runs an example of tests/examples there and draws its packets: build/trace/rnr.html
# make pcaps        makes small captures there with a comment on each packet, for Wireshark: build/pcaps
# make check        runs every test; make check ONLY=name runs those whose name begins so, GUEST=um, um-debug or stock
#                   in that guest
# make check-fast   runs those that need no guest; make check-long what make check leaves out because it takes long
# make bench        measures against the kernel's own rdma_rxe; make bench COUNT=1 counts
#                   instructions alone, CHARTS=1 draws SVG; PROFILE='veth: SEND 64 B' shows what the instructions
#                   of a row are spent on, or where the processors are; GUEST=um measures in the fast guest, at the
#                   machine's own speed
# make deb          builds the Debian packages, in build/deb
#
# They set the laboratory up first (make setup), in FERROCE_CACHE, by default ~/.cache/ferroce.
#
# With your own kernel, inside a Debian 13 that has its compilers:
# make modules KDIR=/path/to/prepared/tree [KERNELRELEASE=...]
# make provider
# make install KDIR=... KERNELRELEASE=... [DESTDIR=...]
#
# Anywhere with cargo and gcc, such as in the image of a container: make install-provider [PROVIDERDIR=...] [DESTDIR=...]
# What both of them installed: make uninstall [KERNELRELEASE=...]

PYTHON ?= python3
LAB := $(PYTHON) -m tests.lab
PROVIDER := build/provider/libferroce.so

export KDIR KERNELRELEASE DESTDIR PROVIDER PROVIDERDIR

.PHONY: all setup modules provider install install-provider uninstall deb shell run trace pcaps um um-debug check check-fast check-long bench \
	clean help
# The kernel's build and cargo are parallel within; the targets here are not.
.NOTPARALLEL:

all: modules provider

help:
	@sed -n '3,26s/^# \{0,1\}//p' Makefile

setup:
	@$(LAB) setup $(if $(REFRESH),--refresh)

modules:
ifeq ($(KDIR),)
	@$(LAB) modules
else
	@sh tests/lab/native.sh preflight-kernel
	+@sh tests/lab/native.sh modules
endif

# Built right here where there is a cargo, else in the laboratory's root.
provider:
	@sh tests/lab/native.sh provider "$(PYTHON)"

install:
	@sh tests/lab/native.sh preflight-install
	+@$(MAKE) --no-print-directory modules provider
	@sh tests/lab/native.sh install

install-provider: provider
	@sh tests/lab/native.sh install-provider

uninstall:
	@sh tests/lab/native.sh uninstall

deb:
	@$(LAB) deb

shell:
	@$(LAB) prompt $(if $(DIR),--dir '$(DIR)')

# CMD goes by the environment, so that its quotes stay as they are.
run: export FERROCE_CMD = $(value CMD)
run:
	@$(LAB) run $(if $(DIR),--dir '$(DIR)') -- "$$FERROCE_CMD"

trace:
	@$(LAB) um -- 'sh tests/examples/trace.sh $(or $(EXAMPLE),rc)'

pcaps:
	@$(LAB) um -- 'sh tests/examples/pcaps.sh'

um um-debug: export FERROCE_CMD = $(value CMD)
um um-debug:
	@$(LAB) $@ $(if $(DIR),--dir '$(DIR)') -- "$$FERROCE_CMD"

check:
	@$(LAB) check $(if $(GUEST),--guest '$(GUEST)') $(if $(ONLY),--only '$(ONLY)') $(if $(ALL_KERNELS),--all-kernels)

check-fast check-long:
	@$(LAB) $@

bench:
	@$(LAB) bench $(if $(COUNT),--count) $(if $(CHARTS),--charts) $(if $(PROFILE),--profile '$(PROFILE)') $(if $(GUEST),--guest '$(GUEST)')

clean:
	@sh tests/lab/native.sh clean
