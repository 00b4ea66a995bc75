// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! PSNs: in order, behind a gap, or a second time; and the states of a responder.

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
fn duplicates_are_acknowledged_and_not_executed() {
    let mut rig = Rig::new();
    rig.receive(1, 10);
    rig.ok(send(0, true, true, 1));
    rig.ok(write(1, true, true, 4, 4));
    rig.answers();
    let did = rig.env.did.len();
    for n in [0, 1] {
        let outcome = rig.on(IncomingRequest {
            ack_req: false,
            ..send(n, true, true, 1)
        });
        assert_eq!(outcome.dropped, Some(DropReason::Duplicate));
    }
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    assert_eq!(rig.env.did.len(), did);
}

#[test]
fn nothing_is_older_than_the_connection() {
    let mut rig = Rig::new();
    let old = IncomingRequest {
        psn: Psn::new(PSN).sub(1),
        ..send(0, true, true, 1)
    };
    assert_eq!(rig.on(old).dropped, Some(DropReason::OutsideWindow));
    assert_eq!(rig.answers(), []);
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
