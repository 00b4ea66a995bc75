// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Messages and their acknowledgements, SQD, and requests that fail on this side.

use super::*;
use crate::core::rc::requester::ack::MSN_TRUSTED;

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

// Acknowledgements: what they complete, and what they do not.

#[test]
fn one_ack_completes_all_before_it_in_order() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 10);
    rig.silent(2, Operation::Write, 300);
    rig.push(3, Operation::Send, 10);
    rig.push(4, Operation::Send, 600);
    rig.send();
    assert!(!rig.on(4, ACK).has_failed());
    assert_eq!(rig.ended(), [(1, Status::Success), (3, Status::Success)]);
    assert_eq!(rig.requester.retired(), 3);
    let _ = rig.on(6, ACK);
    assert_eq!(rig.ended().last(), Some(&(4, Status::Success)));
    assert_eq!(rig.requester.deadline(), None);
}

#[test]
fn a_refusal_ends_the_right_one() {
    let codes = [
        (NakCode::InvalidRequest, Status::RemInvReqErr),
        (NakCode::RemoteAccess, Status::RemAccessErr),
        (NakCode::RemoteOperational, Status::RemOpErr),
    ];
    for (code, status) in codes {
        let mut rig = Rig::new();
        rig.push(1, Operation::Send, 1);
        rig.silent(2, Operation::Write, 600);
        rig.push(3, Operation::Send, 1);
        rig.send();
        assert!(rig.on(2, AethSyndrome::Nak(code)).has_failed());
        assert_eq!(rig.ended(), [(1, Status::Success), (2, status)]);
        assert_eq!(rig.requester.retired(), 2);
        // Nothing waits for the next one.
        assert_eq!(rig.on(4, ACK), Progress::default());
        rig.flush();
        assert_eq!(rig.ended()[2..], [(3, Status::WrFlushErr)]);
        assert_eq!(rig.requester.retired(), rig.requester.pushed());
    }
}

#[test]
fn a_response_acknowledges_all_before_it() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Write, 1);
    rig.push(2, Operation::Read, 1);
    rig.send();
    let place = rig.accept(1, true, true, 1).unwrap();
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    // Nothing is final before it is placed, and then only once.
    let again = rig.accept(1, true, true, 1).unwrap();
    let done = &mut rig.done;
    let _ = rig
        .requester
        .read_response_placed(&place, 0, &mut |c| done.push(c));
    let _ = rig
        .requester
        .read_response_placed(&again, 0, &mut |c| done.push(c));
    assert_eq!(rig.ended().len(), 2);
    assert_eq!(
        rig.accept(1, true, true, 1).unwrap_err().reason,
        Ignored::Duplicate
    );
}

/// A PSN that is outstanding does not suffice: the MSN has to be one that the responder can have
/// counted to.
#[test]
fn an_acknowledgement_with_an_impossible_msn_is_nobodys() {
    let mut rig = Rig::new();
    rig.requester.msn_agreed = MSN_TRUSTED;
    rig.push(1, Operation::Send, 300);
    rig.push(2, Operation::Read, 1);
    rig.push(3, Operation::Send, 1);
    rig.push(4, Operation::Send, 1);
    for _ in 0..4 {
        rig.next();
    }
    // Three messages left so far.
    for msn in [4, 5, 100, 0xff_ffff] {
        for syndrome in [ACK, SEQUENCE, AethSyndrome::Nak(NakCode::RemoteAccess)] {
            assert_eq!(rig.on_msn(1, syndrome, msn), Progress::default());
        }
    }
    assert_eq!(rig.requester.counters().unexpected_responses, 12);
    assert!(rig.done.is_empty());
    // A responder counts a READ when it accepts it.
    let _ = rig.on_msn(1, ACK, 3);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    let _ = rig.respond(2, true, true, 1);
    rig.send();
    // Two messages are complete, four were sent.
    assert_eq!(rig.on_msn(4, ACK, 1), Progress::default());
    assert_eq!(rig.on_msn(4, ACK, 5), Progress::default());
    assert_eq!(rig.done.len(), 2);
    let _ = rig.on_msn(4, ACK, 4);
    assert_eq!(rig.done.len(), 4);
}

/// Each piece of a long READ is a request by itself, and counts.
#[test]
fn pieces_of_a_read_count_as_messages() {
    let mut rig = Rig::new();
    rig.requester.msn_agreed = MSN_TRUSTED;
    rig.push(1, Operation::Read, (READ_PIECE + 1) * 256);
    rig.push(2, Operation::Send, 1);
    rig.send();
    for n in 0..READ_PIECE {
        let _ = rig.respond(n, n == 0, n + 1 == READ_PIECE, 256);
    }
    rig.send();
    let _ = rig.respond(READ_PIECE, true, true, 256);
    rig.send();
    let _ = rig.on_msn(READ_PIECE + 1, ACK, 4);
    assert_eq!(rig.done.len(), 1);
    let _ = rig.on_msn(READ_PIECE + 1, ACK, 3);
    assert_eq!(rig.done.len(), 2);
}

/// A responder that does not count, or otherwise than we, is one all the same.
#[test]
fn a_responder_that_does_not_count_as_we_do() {
    let ways: [fn(u32) -> u32; 4] = [
        |_| 0,
        |done| done + 2,
        |done| done.wrapping_mul(0x9e_3779),
        |done| done.wrapping_sub(1) & 0xff_ffff,
    ];
    for count in ways {
        let mut rig = Rig::new();
        for n in 0..100 {
            rig.push(n.into(), Operation::Send, 1);
            rig.push(n.into(), Operation::Send, 1);
            rig.send();
            let _ = rig.on_msn(2 * n, ACK, count(2 * n + 1));
            let _ = rig.on_msn(2 * n + 1, ACK, count(2 * n + 2));
            assert_eq!(rig.done.len() as u32, 2 * n + 2);
        }
    }
}

/// One that has counted right four times in a row is expected to go on so.
#[test]
fn a_responder_is_trusted_to_count_when_it_has_counted() {
    let mut rig = Rig::new();
    let mut n = 0;
    for right in [3, 4] {
        for _ in 0..right {
            rig.push(1, Operation::Send, 1);
            rig.send();
            let _ = rig.on_msn(n, ACK, n + 1);
            n += 1;
        }
        rig.push(1, Operation::Send, 1);
        rig.send();
        let done = rig.done.len();
        let _ = rig.on_msn(n, ACK, n + 100);
        // After three it is honoured, and begins anew; after four it is not.
        assert_eq!(rig.done.len() > done, right == 3);
        if right == 3 {
            n += 1;
        }
    }
    let _ = rig.on_msn(n, ACK, n + 1);
    assert_eq!(rig.done.len() as u32, n + 1);
    assert_eq!(rig.requester.counters().unexpected_responses, 2);
}

// SQD.

#[test]
fn draining_finishes_what_was_begun() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.silent(2, Operation::Send, 600);
    rig.push(3, Operation::Send, 1);
    rig.next();
    rig.next();
    rig.requester.drain(true);
    assert!(!rig.requester.is_drained());
    assert_eq!(rig.send(), [(2, false), (3, true)]);
    assert!(!rig.requester.is_drained());
    let _ = rig.on(3, ACK);
    assert!(rig.requester.is_drained());
    assert_eq!(rig.next(), None);
    rig.requester.drain(false);
    assert_eq!(rig.numbers(), [4]);
}

#[test]
fn draining_asks_about_what_left_in_silence() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    assert!(!rig.next().unwrap().ack_req);
    rig.requester.drain(true);
    assert_eq!(rig.send(), [(0, true)]);
    let _ = rig.on(0, ACK);
    assert!(rig.requester.is_drained());
}

// Requests that fail on this side, segments that cannot leave, and the flush.

#[test]
fn what_failed_here_waits_for_its_turn() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 600);
    rig.push(3, Operation::Send, 1);
    assert!(!rig.next().unwrap().ack_req);
    let segment = rig.next().unwrap();
    let progress = rig.fail(segment.slot);
    assert!(!progress.has_failed());
    assert!(rig.done.is_empty());
    // No ACK was requested for the first message yet: its end is retransmitted with a request.
    assert_eq!(rig.send(), [(0, true)]);
    assert_eq!(rig.next(), None);
    let progress = rig.on(0, ACK);
    assert!(progress.has_failed());
    assert_eq!(rig.ended(), [(2, Status::LocProtErr)]);
    rig.flush();
    assert_eq!(rig.ended()[1..], [(3, Status::WrFlushErr)]);
}

#[test]
fn a_read_before_what_failed_here_is_not_asked_for_again() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 3);
    rig.push(2, Operation::Send, 1);
    rig.next();
    let segment = rig.next().unwrap();
    let _ = rig.fail(segment.slot);
    assert_eq!(rig.next(), None);
}

#[test]
fn what_failed_here_does_not_count_as_a_question() {
    // The second message would have requested an ACK for both, but it never leaves.
    for unsend in [false, true] {
        let mut rig = Rig::new();
        rig.silent(1, Operation::Send, 1);
        rig.push(2, Operation::Send, 1);
        assert!(!rig.next().unwrap().ack_req);
        let segment = rig.next().unwrap();
        assert!(segment.ack_req);
        if unsend {
            rig.requester.unsend(&segment, rig.now);
            rig.now += 1_000_000;
        }
        let _ = rig.fail(segment.slot);
        assert_eq!(rig.send(), [(0, true)]);
        assert!(rig.on(0, ACK).has_failed());
        assert_eq!(rig.ended(), [(2, Status::LocProtErr)]);
    }
}

#[test]
fn what_could_not_leave_has_not_asked() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    rig.next();
    let segment = rig.next().unwrap();
    rig.requester.unsend(&segment, rig.now);
    rig.now += 1_000_000;
    rig.requester.drain(true);
    // The second message counts as begun, so it is finished.
    assert_eq!(rig.send(), [(1, true)]);
}

#[test]
fn what_failed_here_first_ends_at_once() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 600);
    let segment = rig.next().unwrap();
    assert!(rig.fail(segment.slot).has_failed());
    assert_eq!(rig.ended(), [(1, Status::LocProtErr)]);
    // A free slot.
    assert_eq!(rig.fail(slot(9)), Progress::default());
}

#[test]
fn a_malformed_request_waits_for_its_turn() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.next();
    let done = &mut rig.done;
    let pushed = rig
        .requester
        .push_failed(2, Status::LocQpOpErr, &mut |c| done.push(c));
    assert_eq!(pushed, Ok(Progress::Continue));
    assert_eq!(rig.next(), None);
    assert!(rig.on(0, ACK).has_failed());
    assert_eq!(rig.ended(), [(2, Status::LocQpOpErr)]);

    let mut rig = Rig::new();
    let done = &mut rig.done;
    let pushed = rig
        .requester
        .push_failed(2, Status::LocQpOpErr, &mut |c| done.push(c));
    assert!(pushed.unwrap().has_failed());
    assert_eq!(rig.ended(), [(2, Status::LocQpOpErr)]);
}

#[test]
fn a_flush_keeps_the_order_and_the_status_of_what_failed() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    rig.push(3, Operation::Send, 1);
    rig.next();
    let slot = rig.next().unwrap().slot;
    assert!(!rig.fail(slot).has_failed());
    rig.flush();
    let ended = [
        (1, Status::WrFlushErr),
        (2, Status::LocProtErr),
        (3, Status::WrFlushErr),
    ];
    assert_eq!(rig.ended(), ended);
    rig.push(4, Operation::Send, 1);
    assert_eq!(rig.next(), None);
    rig.flush();
    assert_eq!(rig.ended().last(), Some(&(4, Status::WrFlushErr)));
}

#[test]
fn what_could_not_leave_comes_again() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 300);
    rig.push(2, Operation::Read, 1);
    rig.next();
    // The second packet, then the READ.
    for _ in 0..2 {
        let segment = rig.next().unwrap();
        rig.requester.unsend(&segment, rig.now);
        rig.now += 1_000_000;
        assert_eq!(rig.next(), Some(segment));
    }
    assert_eq!(rig.next(), None);
    let mut rig = Rig::new();
    for n in 0..3 {
        rig.push(n, Operation::Read, 1);
    }
    for _ in 0..5 {
        let read = rig.next().unwrap();
        rig.requester.unsend(&read, rig.now);
        rig.now += 1_000_000;
    }
    assert_eq!(rig.numbers(), [0, 1]);
}
