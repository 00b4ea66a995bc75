# SPDX-License-Identifier: GPL-2.0
"""Checks of libibverbs and of the provider that it loads."""

import glob
import os
import re
import struct

from .system import VERBS, call, contents, install, read


def libibverbs():
    """The library's file, as the loader would take it."""
    for line in call("ldconfig", "-p")[1].splitlines():
        if "libibverbs.so.1 " in line and "=>" in line:
            path = line.split("=>")[1].strip()
            # Of another architecture than this program is.
            if struct.calcsize("P") == 8 or "64" not in line:
                return os.path.realpath(path)
    return ""


# What the provider's file says of itself, in an ELF note: the newest version of the contract, and the oldest.
NOTE = re.compile(re.escape(struct.pack("=I", 8)) + b"([\x04\x08]\0\0\0)" + re.escape(struct.pack("=I8s", 1, b"ferroce\0")))


def provider_abi(data):
    """The versions of the contract with the module in a provider's bytes; None where it does not say."""
    found = NOTE.search(data)
    if not found:
        return None
    newest = struct.unpack_from("=I", data, found.end())[0]
    # Before 0.2 the note had that one alone.
    oldest = newest if found.group(1)[0] == 4 else struct.unpack_from("=I", data, found.end() + 4)[0]
    return range(oldest, newest + 1)


def versions(served):
    """A range of versions in words."""
    return f"version {served[0]}" if len(served) == 1 else f"versions {served[0]} to {served[-1]}"


def named_drivers(folder):
    """How the files of a libibverbs.d name ferroce's provider: `ferroce`, or a path that only lacks its ending."""
    drivers = [line.split()[1] for name in glob.glob(f"{folder}/*.driver") for line in read(name).splitlines()
               if len(line.split()) == 2 and line.split()[0] == "driver"]
    return [driver for driver in drivers if os.path.basename(driver) in ("ferroce", "libferroce")]


def named_files(names, folder, private):
    """The files in which a libibverbs looks for ferroce's provider: a name without a path is of its folder of providers."""
    return [f"{driver if driver[0] == '/' else f'{folder}/lib{driver}'}-rdmav{private}.so" for driver in named_drivers(names)]


def name_driver(providers, folder="/etc/libibverbs.d"):
    """What names the provider in a folder of providers so that any libibverbs finds it."""
    return f"echo driver {providers}/libferroce >{folder}/ferroce.driver"


def wanted(data):
    """What a libibverbs looks for, by its bytes: where providers are named, their folder, and its private ABI."""
    where = re.search(rb"(/[ -~]*)/lib%s-rdmav(\d+)\.so\0", data)
    names = re.search(rb"(/[ -~]*libibverbs\.d)\0", data)
    return (names.group(1).decode(), where.group(1).decode(), int(where.group(2))) if where and names else None


def other_libraries(system):
    """The libibverbs of programs that run now, if it is not the system's: a Python wheel brings its own. By process."""
    found = {}
    for maps in glob.glob("/proc/[0-9]*/maps"):
        for path in set(re.findall(r" (/\S*/libibverbs[^/\s]*\.so[^/\s]*)$", read(maps), re.M)):
            if os.path.exists(path) and os.path.realpath(path) != system:
                found[os.path.realpath(path)] = maps.split("/")[2]
    return found


def check_other_libraries(report):
    """Whether the libibverbs of programs that run now, where it is not the system's, finds the provider."""
    system = libibverbs()
    for library, process in other_libraries(system).items():
        looks = wanted(contents(library))
        if not looks:
            continue
        names, folder, private = looks
        paths = named_files(names, folder, private)
        if any(map(os.path.exists, paths)):
            report.ok("other libibverbs", f"{library} of process {process} finds {next(filter(os.path.exists, paths))}")
            continue
        ours = os.path.dirname(system) + "/libibverbs"
        fix = (name_driver(ours, names) + ", and start the program again" if os.path.exists(
            f"{ours}/libferroce-rdmav{private}.so") else "replace it by a link to the system's libibverbs.so.1")
        report.problem("other libibverbs", f"process {process} has a libibverbs of its own, {library}, of the private ABI "
                       f"{private}, which finds no provider of ferroce ({' or '.join(paths) or 'none is named'}): the "
                       "program sees no ferroce device", fix)


def check_provider(report, found):
    """libibverbs, its private ABI, and the provider that it loads."""
    library = libibverbs()
    if not library:
        report.problem("libibverbs", "libibverbs is not installed", install("libibverbs1 rdma-core ibverbs-utils"))
        return
    private = max(map(int, re.findall(rb"IBVERBS_PRIVATE_(\d+)", contents(library))), default=0)
    report.ok("libibverbs", f"{library}, private ABI {private}")
    folder = os.path.dirname(library) + "/libibverbs"
    named = named_files("/etc/libibverbs.d", folder, private)
    path = next(filter(os.path.exists, named), named[0] if named else f"{folder}/libferroce-rdmav{private}.so")
    good = True
    if not os.path.exists(path):
        good = False
        others = [os.path.basename(p) for p in glob.glob(f"{os.path.dirname(path)}/libferroce-rdmav*.so")]
        if others:
            report.problem("provider", f"this libibverbs has the private ABI {private} and looks for {path}; there is "
                           f"only {', '.join(sorted(others))}",
                           f"ln -s {sorted(others)[-1]} {path}, if ferroce's release serves that ABI; else "
                           + install("--reinstall ferroce-provider"))
        else:
            report.problem("provider", f"{path} is missing: programs see no ferroce device",
                           install("--reinstall ferroce-provider") + ", or make install in the sources")
    if not named:
        good = False
        report.problem("provider", "no file in /etc/libibverbs.d names the provider: libibverbs does not load it",
                       f"mkdir -p /etc/libibverbs.d && {name_driver(folder)}")
    theirs = provider_abi(contents(path))
    for link in found:
        ours = read(f"{VERBS}/{link.uverbs()}/abi_version")
        if theirs is not None and ours and int(ours) not in theirs:
            good = False
            fix = (install("--only-upgrade ferroce-provider") + ": it serves the modules of older releases, too"
                   if int(ours) > theirs[-1] else "install module and provider of one release "
                   "(apt install ferroce-dkms ferroce-provider), and load the module again: modprobe -r ferroce")
            report.problem("provider", f"the module of {link.name} speaks version {ours} of the interface with its "
                           f"provider (uverbs_abi_ver), and the provider {path} {versions(theirs)}: libibverbs leaves "
                           "the device out", fix)
            break
    if good:
        report.ok("provider", f"{path}, interface {versions(theirs) if theirs else 'version unknown'}")
        check_listed(report, found)


def check_listed(report, found):
    """Whether libibverbs itself lists the devices."""
    status, out, err = call("ibv_devices")
    for link in found:
        if not status and link.name not in out.split() and os.path.exists(f"/dev/infiniband/{link.uverbs()}"):
            why = f": {err.splitlines()[-1]}" if err else ""
            report.problem("provider", f"libibverbs does not list {link.name}{why}",
                           "IBV_SHOW_WARNINGS=1 ibv_devices says what it tried")
