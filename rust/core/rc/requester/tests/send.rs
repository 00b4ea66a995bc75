// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Messages become packets, and packets ask for acknowledgements.

use super::*;

#[test]
fn a_message_becomes_packets() {
    let mut rig = Rig::new();
    rig.requester
        .push(SendRequest {
            solicited: true,
            ..wr(1, Operation::WriteImm, 600)
        })
        .unwrap();
    let first = rig.next().unwrap();
    assert_eq!(first.opcode, Opcode::RcWriteFirst);
    assert_eq!((first.psn, first.offset, first.len), (psn(0), 0, 256));
    let reth = reth_of(&first);
    assert_eq!((reth.va(), reth.rkey(), reth.length()), (0x1000, 5, 600));
    assert!(!first.solicited && !first.ack_req);
    let middle = rig.next().unwrap();
    assert_eq!(middle.opcode, Opcode::RcWriteMiddle);
    assert_eq!((middle.offset, middle.len), (256, 256));
    let last = rig.next().unwrap();
    assert_eq!(last.opcode, Opcode::RcWriteLastImm);
    assert_eq!((last.psn, last.offset, last.len), (psn(2), 512, 88));
    assert_eq!(last.extension(|| ARGUMENTS).imm(), Some([1, 2, 3, 4]));
    assert!(last.solicited && last.ack_req);
    assert_eq!(rig.next(), None);
    assert_eq!(rig.requester.next_psn(), psn(3));
}

#[test]
fn only_what_takes_a_receive_asks_for_a_solicited_event() {
    for (op, length, asks) in [
        (Operation::Send, 1, true),
        (Operation::SendImm, 1, true),
        (Operation::SendInv, 1, true),
        (Operation::WriteImm, 1, true),
        (Operation::Write, 1, false),
        (Operation::Read, 1, false),
        (Operation::FetchAdd, 8, false),
        (Operation::AtomicWrite, 0, false),
    ] {
        let mut rig = Rig::new();
        rig.requester
            .push(SendRequest {
                solicited: true,
                ..wr(1, op, length)
            })
            .unwrap();
        assert_eq!(rig.next().unwrap().solicited, asks, "{op:?}");
    }
}

#[test]
fn empty_messages_take_one_psn_each() {
    let mut rig = Rig::new();
    for (n, op) in [Operation::Send, Operation::Write, Operation::Read]
        .into_iter()
        .enumerate()
    {
        rig.push(n as u64, op, 0);
        let segment = rig.next().unwrap();
        assert_eq!(segment.psn, psn(n as u32));
        let info = segment.opcode.info();
        assert!(info.first && info.last && segment.len == 0);
    }
    assert_eq!(rig.requester.next_psn(), psn(3));
}

#[test]
fn a_segment_may_span_packets() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 1000);
    rig.push(2, Operation::Send, 1);
    let whole = rig.requester.next_segment(0, 100).unwrap();
    assert_eq!(
        (whole.span, whole.len, whole.opcode),
        (4, 1000, Opcode::RcSendOnly)
    );
    assert_eq!(rig.requester.next_segment(0, 100).unwrap().psn, psn(4));
    let _ = rig.on(4, ACK);
    assert_eq!(rig.done.len(), 2);
}

#[test]
fn asks_only_when_somebody_waits() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 10);
    rig.push(2, Operation::Send, 300);
    rig.silent(3, Operation::Send, 10);
    rig.silent(4, Operation::Send, 10);
    let asked = [(0, false), (1, false), (2, true), (3, false), (4, true)];
    assert_eq!(rig.send(), asked);
}

#[test]
fn the_window_is_never_full_without_a_question() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1 << 20);
    let sent = rig.send();
    assert_eq!(sent.len(), 256);
    assert!(sent.last().unwrap().1);
    assert_eq!(sent.iter().filter(|(_, asked)| *asked).count(), 4);
    let progress = rig.on(127, ACK);
    assert!(!progress.has_failed());
    // The window grew by what was acknowledged.
    assert_eq!(rig.send().len(), 256);
}

#[test]
fn a_large_window_asks_often() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1 << 20);
    let mut last = rig.send();
    // The window opens to its maximum of 1024.
    while last.len() < 1024 {
        let (end, _) = *last.last().unwrap();
        let _ = rig.on(end, ACK);
        last = rig.send();
        assert!(!last.is_empty());
    }
    for packets in last.chunks(64) {
        assert!(packets.iter().any(|(_, asked)| *asked));
    }
}

#[test]
fn a_span_ends_at_the_window() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Write, 1 << 20);
    let segment = rig.requester.next_segment(0, u32::MAX).unwrap();
    assert_eq!((segment.span, segment.len), (256, 65536));
    assert!(segment.ack_req && segment.opcode == Opcode::RcWriteFirst);
    assert_eq!(rig.next(), None);
}

#[test]
fn slots_are_used_in_turn() {
    let mut rig = Rig::new();
    for n in 0..16 {
        assert_eq!(
            rig.requester.push(wr(n, Operation::Send, 1)),
            Ok(slot(n as u32))
        );
    }
    assert_eq!(
        rig.requester.push(wr(16, Operation::Send, 1)),
        Err(PushError::Full)
    );
    rig.send();
    let _ = rig.on(2, ACK);
    assert_eq!(rig.requester.push(wr(16, Operation::Send, 1)), Ok(slot(0)));
    assert_eq!(
        rig.requester.push(wr(17, Operation::Send, MAX_MESSAGE + 1)),
        Err(PushError::TooLong)
    );
    let mut none = Requester::new(Vec::<SendSlot>::new());
    assert_eq!(none.push(wr(1, Operation::Send, 1)), Err(PushError::Full));
}

#[test]
fn the_longest_messages_keep_their_offsets() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Write, MAX_MESSAGE);
    let mut end = 0u64;
    let mut packets = 0u32;
    while let Some(segment) = rig.requester.next_segment(0, u32::MAX) {
        assert_eq!(u64::from(segment.offset), end);
        end += u64::from(segment.len);
        packets += segment.span;
        let _ = rig.on(packets - 1, ACK);
    }
    assert_eq!((end, packets), (1 << 31, 1 << 23));
    assert_eq!(rig.ended(), [(1, Status::Success)]);
}
