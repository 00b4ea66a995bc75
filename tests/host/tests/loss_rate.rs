// SPDX-License-Identifier: GPL-2.0

//! What loss costs: messages of 1 MiB over a path with a round trip of 5 ms, without loss and with
//! it. The goodput of the one is bounded by that of the other, and the packets that are sent again
//! by those that were lost.

use ferroce_core::operation::Operation;
use ferroce_host_tests::model::conclude;
use ferroce_host_tests::model::scenario::{Link, Scenario, Work};
use ferroce_host_tests::model::world::World;

/// Messages of a run.
const MESSAGES: usize = 16;

/// Bytes of a message.
const LENGTH: u32 = 1 << 20;

/// What came of a run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Nanoseconds until the last completion.
    took: u64,
    /// Packets that the network lost.
    lost: u64,
    /// Packets that were sent again, probes included.
    again: u64,
    /// ACK timeouts.
    timeouts: u64,
}

/// The two keep packets behind a gap.
const KEEPS: (bool, bool) = (true, false);

/// They drop them, and say of each that there is a gap.
const DROPS: (bool, bool) = (false, false);

/// They say it once.
const TERSE: (bool, bool) = (false, true);

/// 1 MiB messages at an MTU over a wire that takes `packet_ns` for a packet.
fn run(
    op: Operation,
    (mtu, packet_ns): (u32, u32),
    (keeps, terse): (bool, bool),
    spoil: impl Fn(&mut Link),
) -> Run {
    let mut scenario = Scenario::calm(mtu);
    let packets = u16::try_from(LENGTH / mtu).expect("few");
    scenario.sides[0].work = vec![Work::new(op, packets, 0); MESSAGES];
    for side in &mut scenario.sides {
        side.timeout = 14;
        (side.keeps, side.terse) = (keeps, terse);
        side.max_rd_atomic = 16;
        side.max_dest_rd_atomic = 16;
    }
    for link in &mut scenario.links {
        link.delay = 2500;
        link.packet_ns = packet_ns;
        spoil(link);
    }
    let mut world = World::new(&scenario);
    let outcome = conclude(&mut world).unwrap_or_else(|wrong| panic!("{wrong} in {scenario:?}"));
    assert_eq!(outcome.endings, [None, None]);
    let counters = world.endpoints[0].requester.counters();
    Run {
        took: outcome.ended_at,
        lost: outcome.tally.lost,
        again: (counters.retransmitted + counters.tail_probes).into(),
        timeouts: counters.timeouts.into(),
    }
}

/// One packet in a hundred is lost, both ways.
#[test]
fn goodput_at_one_percent() {
    for (wire, go_back) in [((4096, 40_000), 0.25), ((1024, 16_000), 0.15)] {
        for op in [Operation::Write, Operation::Send, Operation::Read] {
            for peers in [DROPS, TERSE, KEEPS] {
                let calm = run(op, wire, peers, |_| ());
                let lossy = run(op, wire, peers, |link| link.loss = 1);
                let part = calm.took as f64 / lossy.took as f64;
                let told = format!("{op:?} {wire:?} {peers:?}, {part:.2}, {lossy:?}");
                println!("{told}");
                assert_eq!(
                    (calm.again, calm.timeouts, lossy.timeouts),
                    (0, 0, 0),
                    "{told}"
                );
                if peers == KEEPS {
                    assert!(part > 0.85 && lossy.again <= lossy.lost, "{told}");
                } else {
                    assert!(part > go_back, "{told}");
                }
            }
        }
    }
}

/// What is done to a link.
type Spoil = fn(&mut Link);

/// Loss of five in a hundred, alone and in bursts, and packets that overtake others, cost more, but
/// no ACK timeout, and nothing much is sent in vain.
#[test]
fn goodput_degrades_gently() {
    let spoils: [(f64, Spoil); 3] = [
        (0.5, |link| link.loss = 5),
        (0.4, |link| (link.loss, link.burst) = (1, 8)),
        (0.85, |link| (link.reorder, link.depth) = (10, 2000)),
    ];
    for (least, spoil) in spoils {
        let wire = (4096, 40_000);
        let calm = run(Operation::Write, wire, KEEPS, |_| ());
        let spoilt = run(Operation::Write, wire, KEEPS, spoil);
        let part = calm.took as f64 / spoilt.took as f64;
        println!("{part:.2} {spoilt:?}");
        assert!(part > least, "{part:.2} {spoilt:?}");
        assert_eq!(spoilt.timeouts, 0);
        assert!(spoilt.again <= 2 * spoilt.lost + 400, "{spoilt:?}");
    }
}
