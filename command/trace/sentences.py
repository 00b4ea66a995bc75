# SPDX-License-Identifier: GPL-2.0
"""What `ferroce trace why` says: each sentence, and each part of one, in English and in Chinese, by its id.

Values stand in it as with str.format, and `{tries:time|times}` is the first word where `tries` is 1, else the second.
Names of IBTA, of libibverbs and of the module are the same in both languages. R_Keys stand behind the word R_Key, by which
pictures find and mask them."""

import string
from collections.abc import Mapping
from typing import Any

LANGUAGES = ("en", "zh")

SENTENCES = {
    # The frame of what is said.
    "nothing_recorded": ("no event of the module was recorded", "没有录到模块的任何事件"),
    "nothing_happened": ("nothing failed, waited or was repeated", "没有请求失败、等待或重传"),
    "perhaps": ("perhaps: {said}", "可能：{said}"),
    "events_lost": ("{lost} {lost:event|events} had no room in the buffer: what is said may be wrong",
                    "缓冲区放不下，丢了 {lost} 个事件：以上结论可能有误"),
    "ended": ("wr {wr} of QP {qpn} ({what}) ended with {status}", "QP {qpn} 的 wr {wr}（{what}）以 {status} 结束"),
    "because": ("{ended}: {cause}", "{ended}：{cause}"),

    # Parts of sentences.
    "qp": ("QP {qpn}", "QP {qpn}"),
    "qp_of_peer": ("QP of the peer", "对端 QP"),
    "request": ("request", "请求"),
    "receive": ("receive", "接收请求"),
    "and": ("; ", "；"),
    "drop": ("{count} by {reason}: {meaning}", "{count} 个计入 {reason}：{meaning}"),

    # RNR_RETRY_EXC_ERR.
    "no_receive": ("{peer} had no receive {times} {times:time|times}. Post receives before the peer sends, or set rnr_retry to 7, "
                   "which is without end",
                   "对端有 {times} 次没有可用的接收请求（{peer}）。接收端应在发送端发送之前提交接收请求，或把 rnr_retry 设为 7，即无限重试"),
    "had_receives": ("{peer}, which has completed {had} {had:receive|receives} before,", "{peer}，此前已完成 {had} 个接收请求"),

    # RETRY_EXC_ERR: what the requester has seen, and where its packets or the answers went.
    "no_answer": ("no answer, {tries} {tries:ACK timeout|ACK timeouts} long. {where}", "ACK 超时 {tries} 次，没有应答。{where}"),
    "asked_again_and_again": ("it was asked for again and again. {where}", "对端一再要求重传。{where}"),
    "requests_dropped": ("Its packets came, and were dropped: {drops}", "请求包到了，但被丢弃：{drops}"),
    "requests_dropped_in_state": (
        "Its packets came, and were dropped: {drops}. {peer} is in {state} since {ago} before ({why})",
        "请求包到了，但被丢弃：{drops}。{peer} 在 {ago} 前已进入 {state}（{why}）"),
    "answers_dropped": ("The answers came, and were dropped: {drops}", "应答到了，但被丢弃：{drops}"),
    "takes_no_requests": ("{peer} is in {state}, and takes no requests: {why}", "{peer} 处于 {state}，不接受请求：{why}"),
    "lost_on_the_way": ("{peer} is here and has dropped nothing: packets, or its answers, were lost on the way",
                        "{peer} 就在本机，也没有丢弃任何包：是请求包或它的应答在途中丢失"),
    "none_executed": ("Its packets came, and {peer} has executed none ({told}): its rq_psn is not our sq_psn, or one end alone was "
                      "connected anew",
                      "请求包到了，但 {peer} 一个也没有执行（{told}）：其 rq_psn 与本端的 sq_psn 不同，或只有一端重新建立了连接"),
    "not_here": ("{peer} is not on this machine, or nothing has reached it: record there as well. `ferroce try PEER` says whether "
                 "a leg is missing",
                 "{peer} 不在本机，或者什么都没有到达它：请在那台机器上也录一份。`ferroce try PEER` 可查出哪一段不通"),

    # REM_ACCESS_ERR.
    "no_right": ("{peer} has refused it: the R_Key is not that of a region of its domain, the range is outside, its words are "
                 "not aligned, or the region lacks the right",
                 "{peer} 拒绝了它：R_Key 不属于其 PD 中的任何 MR，或范围越界，或数据没有对齐，或该 MR 没有相应权限"),
    "unknown_key": ("the R_Key {rkey:#x} is that of no region or window which was made while this was recorded: was it sent whole, "
                    "and in the order of the host?",
                    "R_Key {rkey:#x} 不属于录制期间创建的任何 MR 或 MW：传过来时是否完整，是否为主机字节序？"),
    "deregistered": ("the R_Key {rkey:#x} was deregistered {ago} before", "R_Key {rkey:#x} 在 {ago} 前已注销"),
    "invalidated": ("the R_Key {rkey:#x} was invalidated {ago} before", "R_Key {rkey:#x} 在 {ago} 前已失效（invalidate）"),
    "access_flag_missing": ("the region of R_Key {rkey:#x} was registered without {flag}",
                            "注册 R_Key {rkey:#x} 的 MR 时没有给 {flag}"),
    "outside_of_region": (
        "the R_Key {rkey:#x} was given to {size} bytes: the range begins or ends outside, the region is of another protection domain "
        "than {peer}, or the key was a window's that is gone",
        "R_Key {rkey:#x} 对应 {size} 字节：访问范围的起点或终点越界，或该 MR 与 {peer} 不在同一 PD，或这个 key 属于已不存在的 MW"),
    "outside_of_region_or_not_aligned": (
        "the R_Key {rkey:#x} was given to {size} bytes: the range begins or ends outside, its words are not aligned in memory, the "
        "region is of another protection domain than {peer}, or the key was a window's that is gone",
        "R_Key {rkey:#x} 对应 {size} 字节：访问范围的起点或终点越界，或数据在内存中没有对齐，或该 MR 与 {peer} 不在同一 PD，"
        "或这个 key 属于已不存在的 MW"),

    # REM_INV_REQ_ERR.
    "longer_than_receive": ("the message was longer than the receive that it took, wr {wr} of {peer}",
                            "消息比它占用的接收请求（{peer} 的 wr {wr}）长"),
    "not_permitted": ("{peer} does not permit it: its qp_access_flags lack the right, its max_dest_rd_atomic is less than our "
                      "max_rd_atomic, its path_mtu is not ours, or an atomic one is not aligned",
                      "{peer} 不允许：其 qp_access_flags 没有相应权限，或其 max_dest_rd_atomic 小于本端的 max_rd_atomic，"
                      "或其 path_mtu 与本端不同，或原子操作没有对齐"),

    # REM_OP_ERR.
    "bad_receive": ("the receive that it took, wr {wr} of {peer}, names memory that is not accessible there: the fault is in the "
                    "peer's ibv_post_recv",
                    "它占用的接收请求（{peer} 的 wr {wr}）指向那边不可访问的内存，错在对端的 ibv_post_recv"),
    "malformed_receive_of_peer": ("the receive that it took, wr {wr} of {peer}, is malformed",
                                  "它占用的接收请求（{peer} 的 wr {wr}）格式有误"),
    "peer_failed": ("the peer could not do it, through no fault of ours", "对端无法执行，错不在本端"),

    # LOC_LEN_ERR, LOC_PROT_ERR, LOC_QP_OP_ERR, and what has but one cause.
    "receive_too_short": ("the peer's message is longer than this receive; the peer's request ends with REM_INV_REQ_ERR",
                          "对端的消息比这个接收请求长；对端的请求以 REM_INV_REQ_ERR 结束"),
    "too_long": ("the message is longer than the queue pair sends (a packet for UD, 2 GiB for others), or an atomic one has not 8 "
                 "bytes",
                 "消息超过该 QP 能发送的长度（UD 为一个包，其他类型为 2 GiB），或原子操作不是 8 字节"),
    "bad_memory": ("a scatter/gather entry of the {what} names memory that its lkey does not cover: a wrong lkey, a range beyond the "
                   "region, a region that is deregistered or of another domain, or one without IBV_ACCESS_LOCAL_WRITE that is written",
                   "{what}的某个 SGE 指向其 lkey 未覆盖的内存：lkey 不对，范围超出 MR，MR 已注销或属于另一个 PD，或要写入的 MR 没有 "
                   "IBV_ACCESS_LOCAL_WRITE"),
    "malformed_receive": ("the receive is malformed: more entries than the queue has room for, or a field that must be zero is not",
                          "接收请求格式有误：SGE 比队列容得下的多，或必须为零的字段不为零"),
    "bad_address_handle": ("its address handle is destroyed, or of another domain (it must live until the request has completed), or "
                           "the request is malformed",
                           "它的 AH 已销毁，或属于另一个 PD（AH 必须保留到请求完成），或请求格式有误"),
    "qp_cannot": ("the queue pair cannot do this: an RDMA READ or atomic operation with max_rd_atomic 0, or a malformed request",
                  "该 QP 做不了这个操作：max_rd_atomic 为 0 却发起 RDMA READ 或原子操作，或请求格式有误"),
    "cannot_bind": ("the region of the window lacks IBV_ACCESS_MW_BIND, is too short or of another domain, or the key to be "
                    "invalidated is not valid",
                    "MW 所绑定的 MR 没有 IBV_ACCESS_MW_BIND、太短或属于另一个 PD，或要使其失效的 key 本来就无效"),
    "bad_response": ("the peer's response does not fit the request: the peer, or something on the way, is broken",
                     "对端的响应与请求不符：对端或途中某处有故障"),
    "immediate_without_right": ("a WRITE with immediate data took this receive, and has no right to write where it wants",
                                "一个带立即数的 WRITE 占用了这个接收请求，但它无权写入目标内存"),

    # WR_FLUSH_ERR.
    "flushed": ("{count} {count:request|requests} of QP {qpn} {count:was|were} flushed: {why}",
                "QP {qpn} 的 {count} 个请求被 flush：{why}"),
    "one_failed_before": ("wr {wr} failed before", "此前 wr {wr} 已失败"),
    "has_refused": ("it has refused a request of its peer ({outcome}), which ends both",
                    "它拒绝了对端的一个请求（{outcome}），两端的 QP 都因此终止"),
    "moved_by_user": ("its program, the connection manager, or the end of the link moved it to ERR",
                      "使它转入 ERR 的是其程序、连接管理器，或 link 的删除"),
    "cq_full": ("its CQ was full: make it as large as all queues that complete there, and poll it in time",
                "其 CQ 已满：CQ 的大小应不小于在此完成的各队列之和，并应及时轮询"),
    "in_err": ("it is in ERR", "它处于 ERR"),

    # A completion that was not looked for.
    "missed": ("wr {wr} of QP {qpn} was completed {before} before its CQ was armed, and polled {after} after that: no event comes for "
               "what is there already. Arm the CQ, poll it until it is empty, and then wait",
               "QP {qpn} 的 wr {wr} 在其 CQ arm 之前 {before} 就已完成，arm 之后又过了 {after} 才被轮询到：已经在 CQ 里的完成不会产生事件。"
               "应先 arm CQ，再轮询到空，然后等待"),

    # No device for librdmacm, and an address that rdma_bind_addr did not bind.
    "none_listed": (
        "rdma_create_event_channel failed, for libibverbs lists no device (ENODEV): there is none, or its provider or its file in "
        "/dev/infiniband is not here. `ferroce doctor` says which",
        "rdma_create_event_channel 失败，因为 libibverbs 没有列出任何设备（ENODEV）：没有设备，或者缺少它的 provider "
        "或它在 /dev/infiniband 中的设备文件。`ferroce doctor` 会指出是哪一种"),
    "bound_not_listed": (
        "rdma_bind_addr failed, though the kernel has bound the address to {device}: libibverbs lists no such device (ENODEV), for "
        "its provider or its file in /dev/infiniband is not here. See Documentation/walks/bind-enodev.md",
        "rdma_bind_addr 失败，但内核已把地址绑定到 {device}：libibverbs 没有列出这个设备（ENODEV），"
        "因为缺少它的 provider 或它在 /dev/infiniband 中的设备文件。见 Documentation/walks/bind-enodev.md"),
    "not_bound": (
        "rdma_bind_addr failed, for the kernel has not bound the address: no device has a GID of it (ENODEV), or nobody here has "
        "it (EADDRNOTAVAIL). See Documentation/walks/bind-enodev.md",
        "rdma_bind_addr 失败，内核没有绑定这个地址：没有设备拥有对应的 GID（ENODEV），或者本机没有这个地址（EADDRNOTAVAIL）。"
        "见 Documentation/walks/bind-enodev.md"),

    # What went well in the end.
    "waited_for_receives": (
        "QP {qpn} has waited for receives of {peer} {naks} {naks:time|times}: a message came before its receive was posted",
        "QP {qpn} 因 {peer} 没有接收请求而等待 {naks} 次：消息先于接收请求到达"),
    "waited_for_ack": ("QP {qpn} has waited for its ACK timeout {waits} {waits:time|times}: packets or answers were lost {where}, or "
                       "the peer is slow",
                       "QP {qpn} 等到 ACK 超时 {waits} 次：包或应答{where}丢失，或对端太慢"),
    "sent_again": ("QP {qpn} has sent {again} {again:packet|packets} again, after {naks} {naks:NAK|NAKs} and {probes} "
                   "{probes:probe|probes}: packets or answers were lost or late {where}",
                   "QP {qpn} 重传了 {again} 个包，起因是 {naks} 个 NAK 和 {probes} 个探测包：包或应答{where}丢失或迟到"),
    "slowed_down": ("QP {qpn} has made its window smaller {times} {times:time|times}: the network marks its packets in place of "
                    "dropping them, for they wait in a queue on the way to {peer}, or back",
                    "QP {qpn} 缩小窗口 {times} 次：网络给包打标记而不是丢弃，因为去往 {peer} 或返回的途中有队列积压"),
    "where_dropped": ("({drops})", "（{drops}）"),
    "on_the_way": ("on the way", "在途中"),

    # Packets for nobody, and verbs that fail.
    "packets_dropped": ("packets for QP {qpn} were dropped: {drops}", "发往 QP {qpn} 的包被丢弃：{drops}"),
    "verb_failed": ("{verb} failed with {error}: libibverbs' log, or dynamic debug of the module, says which attribute "
                    "(Documentation/debugging.md)",
                    "{verb} 失败，返回 {error}：是哪个属性，看 libibverbs 的日志或模块的 dynamic debug（Documentation/debugging.md）"),

    # What keeps a packet out, by the counter's name.
    "drop_icrc": ("its ICRC is wrong: something on the way has damaged or rewritten it", "ICRC 不对，途中被损坏或改写"),
    "drop_ip_header": ("it is a fragment, or its IP header has options or is cut off", "是 IP 分片，或 IP 头部带选项，或头部不完整"),
    "drop_malformed": ("it is no valid packet of RoCE v2", "不是合法的 RoCE v2 包"),
    "drop_opcode": ("the queue pair is of another type than the packet (both ends must be RC, UC or UD), or its opcode is unknown",
                    "QP 的类型与包不符（两端须同为 RC、UC 或 UD），或操作码未知"),
    "drop_unknown_qp": ("there is no such queue pair: it is destroyed, or the numbers were exchanged wrongly",
                        "没有这个 QP，它已销毁，或两端交换的 QP 号有误"),
    "drop_group": ("no queue pair is attached to the group: ibv_attach_mcast, or rdma_join_multicast",
                   "没有 QP 加入该组播组，需要 ibv_attach_mcast 或 rdma_join_multicast"),
    "drop_address": ("its addresses are not those of the connection, or of UD not the device's: compare the GIDs of both ends",
                     "地址不是该连接的地址，UD 则不是本设备的地址，请核对两端的 GID"),
    "drop_interface": ("it came by another netdev than that of the device", "不是从该设备的 netdev 收到的"),
    "drop_pkey": ("its partition key is not the default one", "partition key 不是默认值"),
    "drop_qkey": ("its Q_Key is not that of the queue pair", "Q_Key 与该 QP 的不符"),
    "drop_mad": ("a management datagram of a wrong length", "长度不对的 MAD"),
    "drop_state": ("the queue pair is in a state that takes no packets", "该 QP 所处的状态不接收包"),
    "drop_no_memory": ("there was no memory for it", "没有内存可用"),
}


class Formatter(string.Formatter):
    """str.format with a choice of words by a number."""

    def format_field(self, value: Any, format_spec: str) -> str:
        one, choice, many = format_spec.partition("|")
        if choice:
            return one if value == 1 else many
        return super().format_field(value, format_spec)


FORMATTER = Formatter()


def language(environ: Mapping[str, str]) -> str:
    """That of messages, by the first of these variables that is set, as with every program (POSIX, locale)."""
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.startswith("zh") else "en"


def say(lang: str, name: str, /, **values: Any) -> str:
    """A sentence, or a part of one, with its values."""
    return FORMATTER.vformat(SENTENCES[name][LANGUAGES.index(lang)], (), values)
