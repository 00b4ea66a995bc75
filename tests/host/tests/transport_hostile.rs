// SPDX-License-Identifier: GPL-2.0

//! Peers that send anything at all. Overflow checks are on here, as they are in the kernel, so a
//! number that leaves its range is a failure too.

use ferroce_core::wire::headers::Reth;
use ferroce_core::wire::opcode::Opcode;
use ferroce_core::wire::packet::Extension;
use ferroce_core::wire::psn::Psn;
use ferroce_host_tests::hostile::{self, any_request, connected_responder, REGION};
use ferroce_host_tests::model::dice::Dice;
use ferroce_host_tests::model::memory::{Env, Memory};
use ferroce_host_tests::model::plan::{BASE, RKEY};

#[test]
fn requests_of_any_kind() {
    let accepted: usize = (0..3000)
        .map(|seed| hostile::requests(&mut Dice::of(&[seed]), 60))
        .sum();
    // The test is about more than refusals.
    assert!(accepted > 10_000, "{accepted}");
}

#[test]
fn packets_of_any_kind_to_unreliable_queue_pairs() {
    let executed: usize = (0..3000)
        .map(|seed| hostile::unreliable_requests(&mut Dice::of(&[seed]), 60))
        .sum();
    assert!(executed > 10_000, "{executed}");
    let taken: usize = (0..2000)
        .map(|seed| hostile::datagrams(&mut Dice::of(&[seed]), 60))
        .sum();
    assert!(taken > 10_000, "{taken}");
}

#[test]
fn responses_of_any_kind() {
    let succeeded: usize = (0..4000)
        .map(|seed| hostile::responses(&mut Dice::of(&[seed]), 80))
        .sum();
    assert!(succeeded > 500, "{succeeded}");
}

#[test]
fn work_requests_of_any_kind() {
    let taken: usize = (0..3000)
        .map(|seed| hostile::work_requests(&mut Dice::of(&[seed]), 60))
        .sum();
    assert!(taken > 10_000, "{taken}");
}

#[test]
fn a_hundred_thousand_reads_again() {
    // Whatever is asked for again and again, the queue of answers stays short.
    let mut memory = Memory::unplanned(REGION);
    let mut responder = connected_responder(0);
    let mut rng = Dice::of(&[9]);
    let mut request = any_request(&mut rng, Psn::new(0), None);
    request.opcode = Opcode::RcReadRequest;
    request.payload_len = 0;
    for n in 0..100_000 {
        request.psn = if n % 10 == 0 {
            responder.expected_psn()
        } else {
            responder.expected_psn().sub(rng.below(200) as u32)
        };
        request.extension = Extension::Reth(Reth::new(BASE, RKEY, rng.below(3000) as u32));
        let mut env = Env {
            memory: &mut memory,
            payload: &[],
        };
        let outcome = responder.on_request(&request, &mut env);
        assert_eq!(outcome.fatal, None);
        if n % 10 == 0 {
            let mut before = None;
            let mut answers = 0;
            while let Some(response) = responder.next_response(1) {
                // In order, and never twice in a run.
                let psn = response.psn();
                assert!(before.is_none_or(|before: Psn| before.is_before(psn)));
                before = Some(psn);
                answers += 1;
            }
            assert!(answers <= 16 * 12 + 2);
        }
    }
}
