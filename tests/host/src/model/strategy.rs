// SPDX-License-Identifier: GPL-2.0

//! Any scenario, for proptest. What comes first in a choice is the simplest, which is where a
//! failure shrinks to; seeds do not shrink.

use super::scenario::{Blackout, Event, Fault, Link, Place, Receive, Scenario, Side, What, Work};
use ferroce_core::operation::Operation;
use proptest::collection::vec;
use proptest::prelude::*;

/// What may go wrong in a scenario.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// The network loses, doubles, reorders, changes.
    pub network: bool,
    /// Requests and receives are wrong, or there are too few receives.
    pub requests: bool,
    /// QPs are not ready in time, drain, go to ERR, are destroyed; memory goes.
    pub states: bool,
    /// Segments of the local path, too.
    pub spans: bool,
}

impl Trouble {
    /// All of it.
    pub const ALL: Self = Self {
        network: true,
        requests: true,
        states: true,
        spans: true,
    };
}

fn percent(on: bool, max: u8) -> BoxedStrategy<u8> {
    if on {
        prop_oneof![3 => Just(0), 2 => 1..=max.min(5), 1 => 1..=max].boxed()
    } else {
        Just(0).boxed()
    }
}

/// True, if at all, about once in `n` times.
fn rarely(on: bool, n: u32) -> BoxedStrategy<bool> {
    if on {
        prop_oneof![n - 1 => Just(false), 1 => Just(true)].boxed()
    } else {
        Just(false).boxed()
    }
}

prop_compose! {
    fn link(trouble: bool)(
        delay in 1u16..20,
        jitter in prop_oneof![2 => Just(0u16), 1 => 0u16..50],
        loss in percent(trouble, 30),
        burst in prop_oneof![3 => Just(0u8), 1 => 0u8..12],
        duplicate in percent(trouble, 40),
        reorder in percent(trouble, 30),
        depth in 1u16..100,
        gather in prop_oneof![7 => Just(0u8), 1 => 1u8..10],
    ) -> Link {
        let packet_ns = 0;
        Link { delay, jitter, packet_ns, loss, burst, duplicate, reorder, depth, gather }
    }
}

/// The operations that ask the peer, the simplest first.
pub const ASKING: [Operation; 10] = [
    Operation::Send,
    Operation::Write,
    Operation::Read,
    Operation::SendImm,
    Operation::WriteImm,
    Operation::FetchAdd,
    Operation::CompareSwap,
    Operation::AtomicWrite,
    Operation::Flush,
    Operation::SendInv,
];

/// Any of them.
pub fn op() -> impl Strategy<Value = Operation> {
    proptest::sample::select(&ASKING[..])
}

/// Any operation that asks no peer.
fn here() -> impl Strategy<Value = Operation> {
    prop_oneof![
        Just(Operation::LocalInv),
        Just(Operation::BindMw),
        Just(Operation::RegMr),
    ]
}

fn place(trouble: bool) -> BoxedStrategy<Place> {
    let bad = u32::from(trouble);
    prop_oneof![
        60 => Just(Place::Own),
        8 => Just(Place::Cell),
        bad => Just(Place::WrongKey),
        bad => Just(Place::Outside),
        bad => Just(Place::Wraps),
    ]
    .boxed()
}

prop_compose! {
    fn work(trouble: bool)(
        gap in prop_oneof![3 => Just(0u16), 1 => 0u16..40, 1 => 0u16..3000],
        op in prop_oneof![9 => op(), 2 => here()],
        packets in prop_oneof![3 => 0u16..2, 2 => 0u16..6],
        bytes in prop_oneof![Just(0i16), -2i16..3, 0i16..256],
        signaled in prop_oneof![2 => Just(true), 1 => Just(false)],
        fence in prop_oneof![3 => Just(false), 1 => Just(true)],
        solicited: bool,
        gone in rarely(trouble, 80),
        place in place(trouble),
    ) -> Work {
        Work { gap, op, packets, bytes, signaled, fence, solicited, gone, place }
    }
}

fn receive(trouble: bool) -> impl Strategy<Value = Receive> {
    let bad = u32::from(trouble);
    let fault = prop_oneof![
        40 => Just(Fault::None(0)),
        20 => any::<u8>().prop_map(Fault::None),
        bad => (1u16..600).prop_map(Fault::Short),
        bad => Just(Fault::Malformed),
        bad => Just(Fault::Gone),
    ];
    let gap = prop_oneof![3 => Just(0u16), 1 => 0u16..100, 1 => 0u16..3000];
    (gap, fault).prop_map(|(gap, fault)| Receive { gap, fault })
}

/// A first PSN, often one that wraps soon.
fn first_psn() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0u32),
        0xff_ff80u32..=0xff_ffff,
        0x7f_ff80u32..0x80_0080,
        0u32..1 << 24,
    ]
}

prop_compose! {
    fn attributes(trouble: Trouble)(
        first_psn in first_psn(),
        retry_cnt in prop_oneof![2 => Just(7u8), 3 => 0u8..=7],
        rnr_retry in prop_oneof![2 => Just(7u8), 3 => 0u8..=7],
        rnr_timer in prop_oneof![3 => 1u8..16, 1 => 0u8..32],
        timeout in prop_oneof![20 => 9u8..16, 1 => Just(0u8)],
        reads in prop_oneof![12 => 1u8..=16, 1 => Just(0u8)],
        more_reads in prop_oneof![3 => Just(0i8), 1 => 0i8..4, 1 => -2i8..1],
        no_read in rarely(trouble.requests, 20),
        no_write in rarely(trouble.requests, 20),
        no_atomic in rarely(trouble.requests, 20),
        (keeps, terse) in prop_oneof![
            2 => Just((true, false)),
            1 => Just((false, false)),
            1 => Just((false, true)),
        ],
        batch in prop_oneof![1 => Just(1u8), 1 => 2u8..16],
    ) -> (Side, i8) {
        let side = Side {
            batch,
            first_psn,
            retry_cnt,
            rnr_retry,
            rnr_timer,
            timeout,
            // No READs at all is a mistake of the user.
            max_rd_atomic: if trouble.requests { reads } else { reads.max(1) },
            allow_read: !no_read,
            allow_write: !no_write,
            allow_atomic: !no_atomic,
            keeps,
            terse,
            ..Side::usual(0)
        };
        (side, if trouble.requests { more_reads } else { more_reads.abs() })
    }
}

prop_compose! {
    fn side(trouble: Trouble)(
        (side, more_reads) in attributes(trouble),
        send_log in 0u8..7,
        recv_log in 0u8..6,
        budget in prop_oneof![2 => Just(64u8), 1 => 1u8..20],
        late in prop_oneof![5 => Just(0u8), 1 => 1u8..30],
        stuck in prop_oneof![8 => Just(0u8), 1 => 1u8..30],
        rtr_at in prop_oneof![6 => Just(0u32), 1 => 0u32..20_000],
        rts_after in prop_oneof![6 => Just(0u32), 1 => 0u32..20_000],
        work in vec(work(trouble.requests), 0..20),
        receives in vec(receive(trouble.requests), 0..20),
        starve in prop_oneof![8 => Just(None), 1 => (0u8..8).prop_map(Some)],
    ) -> (Side, i8) {
        let side = Side {
            send_log,
            recv_log,
            budget,
            late,
            stuck: if trouble.network { stuck } else { 0 },
            rtr_at: if trouble.states { rtr_at } else { 0 },
            rts_after: if trouble.states { rts_after } else { 0 },
            work,
            receives,
            starve: starve.filter(|_| trouble.requests),
            ..side
        };
        (side, more_reads)
    }
}

prop_compose! {
    fn blackout()(
        from in 0u32..5000,
        length in prop_oneof![4 => 0u32..20_000, 1 => 0u32..2_000_000],
        side in prop_oneof![Just(None), (0usize..2).prop_map(Some)],
    ) -> Blackout {
        Blackout { from, length, side }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let what = prop_oneof![
        6 => (0u16..3000).prop_map(What::Drain),
        2 => Just(What::Error),
        2 => Just(What::Destroy),
        1 => Just(What::RegionGone),
        1 => Just(What::LocalGone),
        6 => Just(What::Marked),
    ];
    let at = prop_oneof![0u32..60, 0u32..3000, 0u32..60_000];
    (at, 0usize..2, what).prop_map(|(at, side, what)| Event { at, side, what })
}

prop_compose! {
    /// Any scenario with such trouble.
    pub fn scenario(trouble: Trouble)(
        seed in any::<u64>().no_shrink(),
        mtu in prop_oneof![
            4 => Just(256u32),
            2 => Just(512u32),
            2 => Just(1024u32),
            1 => Just(2048u32),
            1 => Just(4096u32),
        ],
        span in prop_oneof![3 => Just(1u32), 2 => 2u32..=16],
        [(mut a, a_more), (mut b, b_more)] in [side(trouble), side(trouble)],
        mut links in [link(trouble.network), link(trouble.network)],
        blackouts in prop_oneof![4 => vec(blackout(), 0..1), 1 => vec(blackout(), 1..3)],
        events in prop_oneof![1 => vec(event(), 0..1), 2 => vec(event(), 0..3)],
    ) -> Scenario {
        // A responder takes as many READs as its peer has, or some more, or (which is a mistake)
        // fewer.
        let limit = |own: u8, more: i8| own.saturating_add_signed(more).min(16);
        a.max_dest_rd_atomic = limit(b.max_rd_atomic, a_more);
        b.max_dest_rd_atomic = limit(a.max_rd_atomic, b_more);
        let span = if trouble.spans { span } else { 1 };
        if span > 1 {
            // On the local path nothing comes in batches.
            links.iter_mut().for_each(|link| link.gather = 0);
        }
        Scenario {
            seed,
            mtu,
            span,
            sides: [a, b],
            links,
            blackouts: if trouble.network { blackouts } else { Vec::new() },
            events: if trouble.states { events } else { Vec::new() },
        }
    }
}
