// SPDX-License-Identifier: GPL-2.0

//! Peers that send anything at all. Overflow checks are on here, as they are in the kernel, so a
//! number that leaves its range is a failure too.

use ferroce_core::message::Mtu;
use ferroce_core::rc::responder::{Resource, Responder};
use ferroce_core::rc::{RemoteRights, ResponderConfig};
use ferroce_core::segment::IncomingRequest;
use ferroce_core::wire::headers::Reth;
use ferroce_core::wire::opcode::Opcode;
use ferroce_core::wire::packet::Extension;
use ferroce_core::wire::psn::Psn;
use ferroce_host_tests::hostile;
use ferroce_host_tests::model::dice::Dice;
use ferroce_host_tests::model::memory::{Env, Memory};
use ferroce_host_tests::model::plan::{BASE, RKEY};

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
    let mut memory = Memory::unplanned(1 << 16);
    let mut responder = Responder::new(vec![Resource::default(); 4]);
    responder.connect(ResponderConfig {
        mtu: Mtu::MIN,
        rq_psn: Psn::new(0),
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        rights: RemoteRights::ALL,
    });
    let mut rng = Dice::of(&[9]);
    let mut request = IncomingRequest {
        opcode: Opcode::RcReadRequest,
        psn: Psn::new(0),
        span: 1,
        ack_req: true,
        keeps: false,
        solicited: false,
        extension: Extension::None,
        payload_len: 0,
    };
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
