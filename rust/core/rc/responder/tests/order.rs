// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! PSNs in order, behind a gap, or a second time; the states of a responder; READs and their
//! answers.

use super::*;

#[test]
fn acks_are_coalesced_and_only_sent_when_asked_for() {
    let mut rig = Rig::new();
    for n in 0..4 {
        rig.receive(u64::from(n), 10);
        rig.ok(IncomingRequest {
            ack_req: n == 1,
            ..send(n, true, true, 1)
        });
    }
    // It says what arrived, not what was asked.
    assert_eq!(rig.answers(), [(3, Ok(ACK))]);
    rig.receive(9, 10);
    rig.ok(IncomingRequest {
        ack_req: false,
        ..send(4, true, true, 1)
    });
    assert_eq!(rig.answers(), []);
}

#[test]
fn the_msn_counts_messages() {
    let mut rig = Rig::new();
    rig.receive(1, 1000);
    rig.ok(send(0, true, false, 256));
    rig.ok(send(1, false, true, 1));
    rig.ok(write(2, true, true, 3, 3));
    rig.ok(read(3, BASE, 1));
    let response = rig.responder.next_response(1).unwrap();
    assert_eq!(response.extension().aeth().unwrap().msn(), 3);
    let ack = rig.on(write(2, true, true, 3, 3));
    assert_eq!(ack.dropped, Some(DropReason::Duplicate));
    let response = rig.responder.next_response(1).unwrap();
    assert_eq!(response.extension().aeth().unwrap().msn(), 3);
}

#[test]
fn a_gap_is_reported_once_for_what_is_sent_in_one_go() {
    let mut rig = Rig::new();
    for n in 0..4 {
        rig.receive(n, 10);
    }
    rig.ok(send(0, true, true, 1));
    for n in [2, 3] {
        let outcome = rig.on(send(n, true, true, 1));
        assert_eq!(outcome.dropped, Some(DropReason::OutOfSequence));
    }
    assert_eq!(rig.answers(), [(1, Ok(SEQUENCE))]);
    let _ = rig.on(send(4, true, true, 1));
    assert_eq!(rig.answers(), []);
    rig.ok(send(1, true, true, 1));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    // The next gap is another one.
    let _ = rig.on(send(3, true, true, 1));
    assert_eq!(rig.answers(), [(2, Ok(SEQUENCE))]);
    assert_eq!(rig.env.completions.len(), 2);
}

/// The peer has begun again, and what was missing was lost again: that is reported at once.
#[test]
fn a_lost_repetition_is_reported_again() {
    let mut rig = Rig::new();
    for n in [1, 2, 5] {
        let _ = rig.on(send(n, true, true, 1));
    }
    assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
    for n in [1, 2, 3] {
        let _ = rig.on(send(n, true, true, 1));
    }
    assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
    // The last packet alone, as a probe.
    let _ = rig.on(send(3, true, true, 1));
    assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
}

/// What a forged packet has led to does not silence the report of a real gap behind it.
#[test]
fn a_forged_packet_does_not_hide_a_gap() {
    for forged in [1, 2, 3, 4096] {
        let mut rig = Rig::new();
        let _ = rig.on(send(forged, true, true, 1));
        assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
        let _ = rig.on(send(1, true, true, 1));
        assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
    }
}

#[test]
fn what_no_peer_sends_is_dropped_in_silence() {
    let mut rig = Rig::new();
    for n in [4097, 5000, 1 << 20, (1 << 23) - 1] {
        let outcome = rig.on(send(n, true, true, 1));
        assert_eq!(outcome.dropped, Some(DropReason::OutsideWindow));
        let outcome = rig.on(read(n, BASE, 1));
        assert_eq!(outcome.dropped, Some(DropReason::OutsideWindow));
    }
    assert_eq!(rig.answers(), []);
    rig.ok(IncomingRequest {
        span: 100_000,
        ack_req: false,
        ..write(0, true, true, 25_600_000, 25_600_000)
    });
    for (age, known) in [(1, true), (65536, true), (65537, false), (99_999, false)] {
        let outcome = rig.on(send(100_000 - age, true, true, 1));
        let reason = match known {
            true => DropReason::Duplicate,
            false => DropReason::OutsideWindow,
        };
        assert_eq!(outcome.dropped, Some(reason));
        assert_eq!(rig.answers().len(), usize::from(known));
    }
}

#[test]
fn what_was_missing_takes_an_unsent_nak_back() {
    let mut rig = Rig::new();
    rig.receive(1, 10);
    let _ = rig.on(send(1, true, true, 1));
    rig.ok(send(0, true, true, 1));
    assert_eq!(rig.answers(), [(0, Ok(ACK))]);
}

#[test]
fn only_a_connected_responder_takes_requests() {
    let mut responder = Responder::new(vec![Resource::default(); 2]);
    let mut env = Env::default();
    let request = send(0, true, true, 1);
    let outcome = responder.on_request(&request, &mut env);
    assert_eq!(outcome.dropped, Some(DropReason::NotReady));
    responder.connect(config());
    assert!(responder.abort().is_none());
    let outcome = responder.on_request(&request, &mut env);
    assert_eq!(outcome.dropped, Some(DropReason::NotReady));
    assert_eq!(responder.read_failed(), Outcome::default());
    assert_eq!(responder.next_response(1), None);
    responder.reset();
    responder.connect(config());
    env.receives.push_back(TakeReceive::Taken {
        wr_id: 1,
        capacity: 1,
    });
    assert_eq!(responder.on_request(&request, &mut env), Outcome::default());
}

// RDMA READs and their answers.

#[test]
fn reads_are_answered_in_pieces_and_before_later_acks() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, true, 1, 1));
    rig.ok(read(1, BASE + 100, 600));
    rig.receive(1, 10);
    rig.ok(send(4, true, true, 1));
    let answers = [
        (1, Err((true, false, 256))),
        (2, Err((false, false, 256))),
        (3, Err((false, true, 88))),
        (4, Ok(ACK)),
    ];
    assert_eq!(rig.answers(), answers);
    rig.ok(read(5, BASE + 100, 600));
    let Some(Response::ReadResponse {
        segment, source, ..
    }) = rig.responder.next_response(2)
    else {
        panic!("a READ response");
    };
    assert_eq!((segment.span, segment.len, source.va), (2, 512, BASE + 100));
    let Some(Response::ReadResponse {
        segment, source, ..
    }) = rig.responder.next_response(9)
    else {
        panic!("a READ response");
    };
    assert_eq!((segment.span, segment.len, source.va), (1, 88, BASE + 612));
    assert!(segment.last && !segment.first);
}

#[test]
fn refusals_wait_for_reads_too() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 300));
    assert!(!rig.responder.has_ended());
    let outcome = rig.on(write(2, true, true, 2, 1));
    assert_eq!(outcome.fatal, Some(Fatal::InvalidRequest));
    assert!(!rig.responder.has_ended());
    let answers = [
        (0, Err((true, false, 256))),
        (1, Err((false, true, 44))),
        (2, Ok(AethSyndrome::Nak(NakCode::InvalidRequest))),
    ];
    assert_eq!(rig.answers(), answers);
    assert!(rig.responder.has_ended());
}

/// Neither the responses before a fatal NAK nor the NAK are lost to a full qdisc.
#[test]
fn what_has_not_left_before_the_end_leaves_later() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 300));
    let outcome = rig.on(write(2, true, true, 2, 1));
    assert_eq!(outcome.fatal, Some(Fatal::InvalidRequest));
    let all = |rig: &mut Rig| {
        rig.responder.begin_run();
        core::iter::from_fn(|| rig.responder.next_response(1)).collect::<Vec<_>>()
    };
    let sent = all(&mut rig);
    assert_eq!(sent.len(), 3);
    for from in [0, 1, 2, 0] {
        assert!(rig.responder.has_ended());
        rig.responder.unsend(&sent[from]);
        assert!(!rig.responder.has_ended());
        assert_eq!(all(&mut rig), sent[from..]);
    }
}

#[test]
fn too_many_reads() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.ok(read(1, BASE, 1));
    assert_eq!(rig.on(read(2, BASE, 1)).fatal, Some(Fatal::InvalidRequest));
    assert_eq!(rig.answers().len(), 3);
    // Those that are answered do not count, nor do answers that are given again.
    let mut rig = Rig::new();
    for n in 0..20 {
        rig.ok(read(n, BASE, 1));
        if n > 0 {
            let _ = rig.on(read(n - 1, BASE, 1));
        }
        rig.answers();
    }
    let _ = rig.on(read(18, BASE, 1));
    let _ = rig.on(read(19, BASE, 1));
    rig.ok(read(20, BASE, 1));
    rig.ok(read(21, BASE, 1));
    assert_eq!(rig.answers().len(), 4);
    // The newest that the peer may have outstanding are known, and no others.
    let known = [(18, false), (19, false), (20, true), (21, true)];
    for (n, known) in known {
        let reason = match known {
            true => DropReason::Duplicate,
            false => DropReason::UnknownRead,
        };
        assert_eq!(rig.on(read(n, BASE, 1)).dropped, Some(reason));
    }
    assert_eq!(rig.answers().len(), 2);
    let mut rig = Rig::with(ResponderConfig {
        max_dest_rd_atomic: 0,
        ..config()
    });
    rig.invalid(read(0, BASE, 0));
}

/// Peers round up what was agreed on to a power of two, and send so many at once.
#[test]
fn as_many_reads_as_the_next_power_of_two() {
    for (agreed, most) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (9, 16), (16, 16)] {
        let mut rig = Rig::with(ResponderConfig {
            max_dest_rd_atomic: agreed,
            ..config()
        });
        for n in 0..most {
            rig.ok(read(n, BASE, 1));
        }
        // All of them are known when the peer asks again.
        assert_eq!(rig.answers().len(), most as usize);
        for n in 0..most {
            let again = rig.on(read(n, BASE, 1));
            assert_eq!(again.dropped, Some(DropReason::Duplicate));
        }
        assert_eq!(rig.answers().len(), most as usize);
        for n in most..2 * most {
            rig.ok(read(n, BASE, 1));
        }
        let one_more = rig.on(read(2 * most, BASE, 1));
        assert_eq!(one_more.fatal, Some(Fatal::InvalidRequest));
    }
}

#[test]
fn the_longest_read() {
    let mut rig = Rig::new();
    rig.invalid(read(0, BASE, MAX + 1));
    let mut rig = Rig::new();
    assert_eq!(rig.on(read(0, BASE, MAX)).fatal, Some(Fatal::AccessError));
}

#[test]
fn a_read_again_is_checked_again() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.answers();
    rig.env.is_gone = true;
    let outcome = rig.on(read(0, BASE, 1));
    assert_eq!(outcome.fatal, None);
    rig.env.is_gone = false;
    let nak = AethSyndrome::Nak(NakCode::RemoteAccess);
    assert_eq!(rig.answers(), [(0, Ok(nak))]);
    // An old packet does not end the connection.
    rig.ok(write(1, true, true, 1, 1));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    rig.responder.set_rights(RemoteRights {
        read: false,
        ..RemoteRights::ALL
    });
    let _ = rig.on(read(0, BASE, 1));
    assert_eq!(rig.answers(), []);
}

/// The peer has its data, and this side has taken the memory back, when a READ is answered again: a
/// probe had crossed the responses. What was not answered before is another matter.
#[test]
fn memory_that_is_gone_when_a_read_is_answered_again_ends_nothing() {
    for keeps in [false, true] {
        let again = |n: u32| IncomingRequest {
            keeps,
            ..read(n, BASE + u64::from(n * MTU), (3 - n) * MTU)
        };
        let mut rig = Rig::new();
        rig.ok(again(0));
        rig.ok(read(3, BASE, 1));
        assert_eq!(rig.answers().len(), 4);
        assert_eq!(rig.on(again(1)).dropped, Some(DropReason::Duplicate));
        assert!(rig.responder.next_response(1).is_some());
        assert_eq!(rig.responder.read_failed(), Outcome::default());
        let nak = AethSyndrome::Nak(NakCode::RemoteAccess);
        assert_eq!(rig.answers(), [(1, Ok(nak))]);
        // The last response of what is asked for.
        let _ = rig.on(again(2));
        assert!(rig.responder.next_response(1).is_some());
        assert_eq!(rig.responder.read_failed(), Outcome::default());
        assert_eq!(rig.answers(), [(2, Ok(nak))]);
        rig.ok(write(4, true, true, 1, 1));
        assert_eq!(rig.answers(), [(4, Ok(ACK))]);

        let mut rig = Rig::new();
        rig.ok(read(0, BASE, 3 * MTU));
        assert!(rig.responder.next_response(1).is_some());
        let _ = rig.on(read(0, BASE, 3 * MTU));
        assert!(rig.responder.next_response(1).is_some());
        let outcome = rig.responder.read_failed();
        assert_eq!(outcome.fatal, Some(Fatal::AccessError));
    }
}

/// Any overlap with what waits to be answered: that is answered all the same.
#[test]
fn a_duplicate_cancels_no_answer() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 256 * 2));
    rig.ok(read(2, BASE, 256 * 2));
    for (n, va, len) in [
        (1, BASE + 256, 256),
        (0, BASE, 1),
        (3, BASE + 256, 10),
        (1, BASE + 256, 512),
    ] {
        let _ = rig.on(read(n, va, len));
    }
    let answers: Vec<_> = rig.answers().into_iter().map(|(n, _)| n).collect();
    assert_eq!(answers, [0, 1, 2, 3]);
}

#[test]
fn an_ack_before_a_read_is_implied_and_one_behind_it_is_not() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, true, 1, 1));
    rig.ok(read(1, BASE, 1));
    assert_eq!(rig.answers(), [(1, Err((true, true, 1)))]);
    rig.ok(write(2, true, true, 1, 1));
    // An old READ is answered before the ACK, and does not stand for it.
    let _ = rig.on(read(1, BASE, 1));
    assert_eq!(rig.answers(), [(1, Err((true, true, 1))), (2, Ok(ACK))]);
}

#[test]
fn an_ack_of_something_old_does_not_pass_a_read_behind_it() {
    // The peer missed the answers to both READs, and asks for all of it again.
    let mut rig = Rig::new();
    rig.ok(write(0, true, true, 1, 1));
    rig.ok(read(1, BASE, 1));
    rig.ok(write(2, true, true, 1, 1));
    rig.ok(read(3, BASE, 1));
    rig.ok(write(4, true, true, 1, 1));
    rig.answers();
    let _ = rig.on(read(1, BASE, 1));
    assert_eq!(rig.answers(), [(1, Err((true, true, 1)))]);
    // To acknowledge number 4 here would say that the answer to number 3 was lost again.
    let _ = rig.on(write(2, true, true, 1, 1));
    assert_eq!(rig.answers(), [(2, Ok(ACK))]);
    let _ = rig.on(read(3, BASE, 1));
    assert_eq!(rig.answers(), [(3, Err((true, true, 1)))]);
    let _ = rig.on(write(4, true, true, 1, 1));
    assert_eq!(rig.answers(), [(4, Ok(ACK))]);
}
