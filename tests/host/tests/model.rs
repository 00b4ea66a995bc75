// SPDX-License-Identifier: GPL-2.0

//! Tens of thousands of random conversations in the model network: whatever happens, every message
//! arrives once, in order and byte for byte, or ends in the error that it should; every work
//! request completes once; nobody tries for ever or waits for nothing.
//!
//! How to run more of them: `ferroce_host_tests::model::runner`.

use ferroce_core::completion::Status;
use ferroce_host_tests::model::runner::explore;
use ferroce_host_tests::model::scenario::Work;
use ferroce_host_tests::model::strategy::{op, scenario, Trouble};
use ferroce_host_tests::model::world::World;
use ferroce_host_tests::model::{check, check_lives, conclude};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// Conversations with such trouble, and their share of all runs in percent.
macro_rules! conversations {
    ($($name:ident $percent:literal $trouble:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let any = scenario($trouble);
                explore(stringify!($name), $percent, any, |one| check(one).map(|_| ()));
            }
        )*
    };
}

conversations! {
    quiet 8 Trouble::default();
    local 8 Trouble { spans: true, ..Trouble::default() };
    network 30 Trouble { network: true, ..Trouble::default() };
    requests 12 Trouble { requests: true, spans: true, ..Trouble::default() };
    states 12 Trouble { states: true, spans: true, ..Trouble::default() };
    everything 26 Trouble::ALL;
}

/// QPs are reset and connected again, with other attributes and PSNs.
#[test]
fn lives() {
    let lives = vec(scenario(Trouble::ALL), 1..4).prop_map(|mut lives| {
        let logs = [0, 1].map(|side: usize| lives[0].sides[side].send_log);
        for life in &mut lives {
            for (side, log) in life.sides.iter_mut().zip(logs) {
                side.send_log = log;
            }
        }
        lives
    });
    explore("lives", 3, lives, |lives| check_lives(lives));
}

/// Messages of more packets than the window has, and more than one READ request asks for.
#[test]
fn long() {
    let work = (op(), 200u16..1300, -1i16..2).prop_map(|(op, n, rest)| Work::new(op, n, rest));
    let strategy = (
        scenario(Trouble::default()),
        vec(work, 1..4),
        0u8..3,
        0u8..3,
    );
    explore("long", 1, strategy, |(scenario, work, loss, duplicate)| {
        let mut scenario = scenario.clone();
        scenario.mtu = 256;
        scenario.sides[0].work.clone_from(work);
        scenario.sides[1].work.clear();
        for side in &mut scenario.sides {
            side.receives.clear();
        }
        for link in &mut scenario.links {
            // Slow enough that the timeout is longer than a window on the wire.
            (link.loss, link.duplicate, link.jitter) = (*loss, *duplicate, 0);
        }
        scenario.sides[0].timeout = 12;
        scenario.sides[0].retry_cnt = 7;
        check(&scenario).map(|_| ())
    });
}

/// The strategies reach what the properties are about: no run of theirs would mean nothing.
#[test]
fn every_ending_and_every_fault_occurs() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = scenario(Trouble::ALL);
    let mut endings = std::collections::BTreeMap::new();
    let mut total = ferroce_host_tests::model::network::Tally::default();
    let mut wraps = 0;
    for _ in 0..4000 {
        let scenario = strategy.new_tree(&mut runner).unwrap().current();
        let mut world = World::new(&scenario);
        let outcome = conclude(&mut world).unwrap();
        for ending in outcome.endings {
            let status = ending.map_or(Status::Success, |(_, status)| status);
            *endings.entry(status.as_u32()).or_insert(0) += 1;
        }
        for (side, endpoint) in scenario.sides.iter().zip(&world.endpoints) {
            let wrapped = endpoint.requester.next_psn().get() < side.first_psn;
            wraps += u32::from(wrapped && endpoint.pushed != 0);
        }
        total.lost += outcome.tally.lost;
        total.doubled += outcome.tally.doubled;
        total.overtaken += outcome.tally.overtaken;
    }
    println!("endings by status: {endings:?}\n{total:?}\nPSN wraps: {wraps}");
    for status in [
        Status::Success,
        Status::LocProtErr,
        Status::LocQpOpErr,
        Status::MwBindErr,
        Status::WrFlushErr,
        Status::RemInvReqErr,
        Status::RemAccessErr,
        Status::RemOpErr,
        Status::RetryExcErr,
        Status::RnrRetryExcErr,
    ] {
        let times = endings.get(&status.as_u32()).copied().unwrap_or(0);
        assert!(times >= 20, "{status:?} only {times} times");
    }
    assert!(total.lost > 1000 && total.doubled > 1000 && total.overtaken > 1000 && wraps > 100);
}
