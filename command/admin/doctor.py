# SPDX-License-Identifier: GPL-2.0
"""`ferroce doctor`: what keeps links and programs from working, and what fixes it."""

import os
import re
import resource
import shutil

from .firewall import check_firewall
from .keep import lost, unit_of
from .libraries import check_other_libraries, check_provider
from .link import Link, is_ferroce, likely_netdev, links, master_of, netdevs_by_device
from .report import Report
from .system import (
    IB, NET, ROCE_PORT, VERBS, call, contents, install, kernel_config, kernel_log, listing, module_loaded, read,
    reasons)


def module_file():
    """Where modprobe finds the module for the running kernel."""
    status, out, _ = call("modinfo", "-n", "ferroce")
    return out if not status and os.path.exists(out) else ""


# Where the package for DKMS leaves the reason for which it built no module, by kernel.
NOT_BUILT = "/var/lib/ferroce-dkms"
LOCKDOWN = "/sys/kernel/security/lockdown"


def only_signed():
    """Why the kernel loads signed modules only, with the command that shows it; nothing where it loads any. Under Secure
    Boot Debian's kernels are locked down, and sig_enforce says N."""
    mode = re.search(r"\[(\w+)\]", read(LOCKDOWN))
    if mode and mode.group(1) != "none":
        return f"the kernel is locked down ({mode.group(1)}, as under Secure Boot)", f"cat {LOCKDOWN}"
    enforce = "/sys/module/module/parameters/sig_enforce"
    return ("the kernel enforces signatures", f"cat {enforce}") if read(enforce) == "Y" else ("", "")


def trusting_the_key():
    """How the kernel comes to trust the key that DKMS signs with: by UEFI, where there is one."""
    if os.path.isdir("/sys/firmware/efi"):
        return "mokutil --import /var/lib/dkms/mok.pub, and confirm the key at the next boot"
    return ("no key can be added, for this machine has no UEFI: boot without lockdown= and module.sig_enforce on the "
            "kernel's command line")


def check_loading(report, file):
    """Whether the module, which is not loaded, can be: root tries."""
    why, proof = only_signed()
    signer = call("modinfo", "-F", "signer", "ferroce")[1]
    if why and not signer:
        report.problem("module", f"{why}: it loads signed modules only, and {file} is not signed",
                       install("ferroce-dkms") + f" (it signs what it builds); then {trusting_the_key()}", f"{proof}; modinfo -F signer ferroce")
    elif read("/proc/sys/kernel/modules_disabled") == "1":
        report.problem("module", "the kernel loads no module any more (kernel.modules_disabled)", "boot the machine anew, "
                       "and load ferroce before that is set", "sysctl kernel.modules_disabled")
    elif os.geteuid():
        signed = f", signed by {signer}" if signer else ""
        if why:
            report.unknown("module", f"{why}, and {file} is not loaded{signed}: whether that key is trusted, root can try",
                           "", "sudo modprobe ferroce")
        else:
            report.ok("module", f"{file}, not loaded now; the first link loads it")
    else:
        log = kernel_log()
        status, _, err = call("modprobe", "ferroce")
        if status:
            said = "; ".join([err.splitlines()[-1] if err else "", *reasons(log)])
            key = "Key was rejected" in err or "Required key" in err
            report.problem("module", f"modprobe ferroce fails: {said}", trusting_the_key() if key else install("--reinstall ferroce-dkms"),
                           "modprobe ferroce; dmesg | tail")
        else:
            report.ok("module", f"{file} loads", "modprobe ferroce")


def check_kernel(report):
    """The kernel, the module in it, and the module's file."""
    release, file = os.uname().release, module_file()
    # In a container the kernel is the host's, and so are its modules.
    has_modules = os.path.isdir(f"/lib/modules/{release}")
    if not module_loaded() and not file:
        config = kernel_config()
        for option, what in (("CONFIG_RUST", "it can load no module in Rust"),
                             ("CONFIG_INFINIBAND", "it has no RDMA core")):
            if config and not re.search(rf"^{option}=[ym]", config, re.M):
                report.problem("kernel", f"the kernel {release} is built without {option}: {what}",
                               "apt install -t trixie-backports linux-image-amd64, and boot that kernel")
                return
        why, fix = read(f"{NOT_BUILT}/{release}"), f"remove that reason; then dkms autoinstall -k {release}"
        if not has_modules:
            why, fix = "none of its modules is here, as in a container", "on the host: ferroce add NETDEV, which loads it"
        elif not why:
            fix = ("apt install ferroce-dkms, or in the sources make install KDIR=... "
                   f"KERNELRELEASE={release}, and depmod")
        report.problem("module", f"there is no module ferroce for the kernel {release}" + (f": {why}" if why else ""), fix)
        return
    report.ok("kernel", release)
    if not module_loaded():
        check_loading(report, file)
        return
    # The same number is in the file that was loaded.
    build = contents("/sys/module/ferroce/notes/.note.gnu.build-id")
    data = contents(file) if file.endswith(".ko") else b""
    if build and data and build not in data:
        report.problem("module", f"the loaded module is another one than {file}: it was replaced while in use",
                       "modprobe -r ferroce && modprobe ferroce (this deletes its links; ferroce add makes them again)")
    else:
        report.ok("module", f"loaded, from {file}" if file else "loaded, and without a file: it will not load again"
                  if has_modules else "loaded")


def check_nodes(report, found):
    """The character devices, and who may open them."""
    for link in found:
        name = link.uverbs()
        path = f"/dev/infiniband/{name}"
        if not link.netdev and not os.path.exists(path):
            # Of another network namespace, and not given to this container.
            continue
        if not name:
            report.problem("device node", f"{link.name} has no verbs device: ib_uverbs is not loaded",
                           "modprobe ib_uverbs")
        elif not os.path.exists(path):
            numbers = read(f"{VERBS}/{name}/dev").replace(":", " ")
            report.problem("device node", f"{path} is missing: no program can open {link.name}",
                           f"udevadm trigger --action=add --subsystem-match=infiniband_verbs; of a container: --device {path}; "
                           f"without udev: mkdir -p /dev/infiniband && mknod -m 666 {path} c {numbers}")
        elif not os.access(path, os.R_OK | os.W_OK) or os.stat(path).st_mode & 0o006 != 0o006:
            who = "you" if not os.access(path, os.R_OK | os.W_OK) else "users that are not root"
            report.problem("device node", f"{path} cannot be opened by {who}", f"chmod 666 {path}; for good: "
                           "apt install --reinstall rdma-core, whose udev rules do it")
        else:
            report.ok("device node", path)


UNLIMITED = ("echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, and log in again (of a service: "
             "LimitMEMLOCK=infinity; of a container: --ulimit memlock=-1)")


def check_memlock(report):
    """How much memory this user may register. Root may register all there is, but not that of a user namespace, which is
    root in a container that was started by somebody else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    effective = int(re.search(r"^CapEff:\s+([0-9a-f]+)", read("/proc/self/status"), re.M).group(1), 16)
    is_first = read("/proc/self/uid_map").split() in ([], ["0", "0", str(2**32 - 1)])
    if limit == resource.RLIM_INFINITY or is_first and effective >> 14 & 1:
        report.ok("memlock", "no limit" if limit == resource.RLIM_INFINITY else "no limit for root (CAP_IPC_LOCK)")
    elif limit < 8 << 20:
        report.problem("memlock", f"only {limit >> 10} KiB of memory can be registered (ulimit -l)", UNLIMITED, "ulimit -l")
    elif limit < 1 << 30:
        report.hint("memlock", f"{limit >> 20} MiB can be registered, rings of queues among them (a queue pair of 4096 "
                    "requests with 512 B inline takes 2.3 MiB): too little for UCX or NCCL", UNLIMITED, "ulimit -l")
    else:
        report.ok("memlock", f"{limit >> 20} MiB can be registered (ulimit -l)")


def check_cm(report, found):
    """Whether programs can use the connection manager, and whether it takes these devices."""
    node = "/dev/infiniband/rdma_cm"
    if found and not os.path.exists(node):
        report.hint("rdma_cm", f"{node} is missing: no program can use librdmacm (rping, UCX, NVMe tools)",
                    f"modprobe rdma_ucm; of a container: --device {node}")
    gids = {name: {address for _, address, _ in Link(name, "").gids() if not address.startswith("fe80:")} for name in listing(IB)}
    for link in found:
        for name, theirs in gids.items():
            # Two links are named once.
            if (not is_ferroce(name) or name > link.name) and (both := gids.get(link.name, set()) & theirs):
                report.hint("rdma_cm", f"{name} has the address {min(both)} of {link.name} as a GID, too: the connection manager "
                            "may take it for programs that name the address alone", f"rdma link delete {name}, or give the link "
                            "an address of its own", "rdma -j link show")


def check_links(report, found, port_users):
    """Whether there is a link, and each one's netdev, MTU and addresses."""
    if not found and port_users:
        return
    missing = [(netdev, name) for netdev, name in lost(found) if os.path.isdir(f"{NET}/{netdev}")]
    for netdev, name in missing:
        report.problem("link", f"{name} is kept for {netdev}, and is not there", f"ferroce add {netdev}", f"systemctl status {unit_of(netdev)}")
    if not found and not missing:
        report.problem("link", "there is no ferroce link in this network namespace",
                       f"ferroce add {likely_netdev() or 'NETDEV'}")
    for link in found:
        if not link.netdev:
            report.hint("link", f"the netdev of {link.name} is in another network namespace: run its programs there, "
                        "for instance by ip netns exec")
            continue
        flags = int(read(f"{NET}/{link.netdev}/flags") or "0", 16)
        if not flags & 1:
            report.problem("netdev", f"{link.netdev} of {link.name} is down", f"ip link set {link.netdev} up")
            continue
        if master := master_of(link.netdev):
            report.problem("link", f"{link.netdev} of {link.name} belongs to {master}, which has its addresses: datagrams and "
                           "the connection manager do not work", f"ferroce del {link.name}; ferroce add {master}",
                           f"ip -d link show dev {link.netdev}")
            continue
        if read(f"{NET}/{link.netdev}/carrier") != "1":
            report.problem("netdev", f"{link.netdev} of {link.name} has no carrier",
                           "plug in the cable; of veth, ip link set PEER up at the other end")
        elif link.state != "ACTIVE":
            report.problem("link", f"{link.name} is {link.state} although {link.netdev} is up and has a carrier",
                           f"ferroce del {link.name}; ferroce add {link.netdev} {link.name}")
        else:
            report.ok("link", f"{link.name} on {link.netdev} is ACTIVE")
        check_mtu(report, link)
        best = link.best_gid()
        if not best or best[1].startswith("fe80:"):
            report.problem("gid", f"{link.netdev} of {link.name} has no address: its GIDs are link-local at best",
                           f"ip addr add 192.0.2.1/24 dev {link.netdev} (with an address of your network)")
        else:
            report.ok("gid", f"{link.name}: use -g {best[0]} ({best[1]})")


def check_mtu(report, link):
    """What the netdev's MTU leaves for RDMA."""
    mtu = link.ib_mtu()
    text = f"{link.netdev} has the MTU {link.netdev_mtu}, which makes the IB MTU of {link.name} {mtu}"
    fix = f"ip link set {link.netdev} mtu 4200, and the same all the way to the peer"
    if mtu < 1024:
        report.problem("mtu", text + "; many programs ask for 1024", fix.replace("4200", "1500"))
    elif mtu < 4096:
        report.hint("mtu", text + "; 4096 is quicker", fix)
    else:
        report.ok("mtu", text)


def check_netns(report):
    """Whether the network namespaces share the RDMA devices, as is usual."""
    mode = re.search(r"\bnetns (\w+)", call("rdma", "system", "show")[1])
    if mode and mode.group(1) == "exclusive":
        report.problem("netns mode", "RDMA devices belong to one network namespace each (exclusive): a program in "
                       "another sees none, and rdma dev set moves a device without its netdev", "rdma system set netns shared")
    elif not shutil.which("rdma"):
        report.problem("rdma", "rdma is not installed, which adds links", install("iproute2"))
    elif mode:
        report.ok("netns mode", mode.group(1))


def rxe_devices():
    """rdma_rxe's devices by name, with their netdevs."""
    netdevs = netdevs_by_device()
    return {name: netdevs.get(name, "") for name in listing(IB) if os.path.exists(f"{IB}/{name}/parent")
            and not is_ferroce(name)}


def check_port(report, found):
    """Who else wants UDP port 4791. Returns whether that is so."""
    wrong = False
    for name, netdev in rxe_devices().items():
        # In another network namespace it harms nobody here; beside a link of ours it has not got the port.
        if netdev and not any(link.netdev and link.netdev != netdev for link in found):
            wrong = True
            report.problem("rdma_rxe", f"rdma_rxe has the link {name} on {netdev}: it takes the UDP port {ROCE_PORT} of "
                           "every address, which ferroce needs", f"rdma link delete {name}")
    if not wrong and not any(link.netdev for link in found):
        text = read("/proc/net/udp") + "\n" + read("/proc/net/udp6")
        if re.search(rf"^\s*\d+: [0-9A-F]+:{ROCE_PORT:04X} ", text, re.M):
            wrong = True
            report.problem("udp port", f"a program has the UDP port {ROCE_PORT} of RoCE: no link can be added",
                           f"ss -ulpn sport = :{ROCE_PORT} names it; end it")
    return wrong


def check_security(report):
    """SELinux and AppArmor, which may deny in silence."""
    if read("/sys/fs/selinux/enforce") == "1":
        report.hint("selinux", "SELinux is enforcing; if a program is denied a device, the audit log says so",
                    "ausearch -m avc -ts recent")
    profile = read("/proc/self/attr/current").strip("\0\n ")
    if profile.endswith("(enforce)"):
        report.hint("apparmor", f"this program runs in the AppArmor profile {profile}, which may deny /dev/infiniband",
                    f"aa-complain {profile.split()[0]}")
    if not any(f["check"] in ("selinux", "apparmor") for f in report.findings):
        report.ok("security modules", "none confines this program")


def diagnose(report):
    """Every check."""
    found = links()
    check_kernel(report)
    check_provider(report, found)
    check_other_libraries(report)
    check_netns(report)
    taken = check_port(report, found)
    check_links(report, found, taken)
    check_nodes(report, found)
    check_cm(report, found)
    check_memlock(report)
    check_firewall(report, found)
    check_security(report)


def doctor(args):
    """What every check finds; 1 when there is a problem."""
    report = Report()
    diagnose(report)
    report.show(args.json, args.quiet)
    if not args.json:
        problems, unknown = report.count("problem"), report.count("unknown")
        print((f"{problems} problem{'s' if problems > 1 else ''} found" if problems else "no problem found")
              + (f", and {unknown} that cannot be told from here" if unknown else ""))
    return 1 if report.count("problem") else 0
