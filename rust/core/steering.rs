// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Steering: which CPU executes the packets that arrive for a QP.
//!
//! A packet is executed where it arrives, in the softirq of its netdev. For a long message that is
//! half of the work; and where the netdev hands packets over on the CPU that sent them (veth, `lo`,
//! a bridge), the same CPU has the other half. So a *bulk batch*, packets that arrived as one and
//! carry a lot, goes to the backlog of another CPU, which executes it there.
//!
//! A response goes to the backlog of another CPU that sends bulk from its QP. While that holds the
//! send queue, for as long as a whole run takes, the CPU of the response would have to spin, which
//! has other packets to execute; and what waits to be sent has to leave from there. But not where
//! both send: what follows for the QP would have to go there, too.
//!
//! Packets of one QP stay in order, as with receive flow steering (RFS): a QP remembers its
//! last [`QueuedBatch`]. Until that is executed, all that arrives for the QP goes to the same
//! backlog; from then on each batch chooses anew. The wait for a backlog ends: its CPU serves it in
//! a softirq, whatever else runs there.
//!
//! Where both ends send bulk, two CPUs do more if each has one way whole than if one sends and the
//! other one receives both. So a QP that sends bulk itself is not steered, and a CPU that does gets
//! none ([`sends_bulk`]). And a hypervisor may have taken a CPU away, which the kernel cannot see:
//! one that serves its backlog late is left alone for a while ([`Punctuality`]).

use super::offload::budget::{
    Helper,
    HelperVerdict, //
};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Fewest bytes of a bulk batch. Another CPU has to be interrupted, which costs about as much as
/// the work for a few KiB.
const BULK_BYTES: u32 = 16 << 10;

/// Fewest bytes of payload of a packet that counts as bulk when it is sent.
const BULK_PACKET: u32 = 1 << 10;

/// Whether a packet with so much payload counts as bulk: a run of such packets takes longer to send
/// than another CPU takes to be interrupted.
#[inline(always)]
pub const fn is_bulk_packet(len: u32) -> bool {
    len >= BULK_PACKET
}

/// Packets in a backlog beyond which no other QP joins it. Its batches are executed where they
/// arrive, in order, which slows down their sender.
const JOINABLE: u32 = 512;

/// Most packets that wait in a backlog, of QPs each of which has as many as its peer has in flight.
/// What comes beyond them is executed where it arrives, out of order.
const MOST_PACKETS: u32 = 16 << 10;

/// The last batch of a QP in a backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedBatch {
    /// The CPU of the backlog.
    pub cpu: u32,
    /// The number of the batch there; numbers wrap.
    pub number: u32,
}

impl QueuedBatch {
    /// As one word that is not 0, the low half of which is the number.
    pub const fn to_bits(self) -> u64 {
        word(Some(self.cpu), self.number)
    }

    /// The batch of such a word; 0 is none.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match numbered((bits >> 32) as u32) {
            Some(cpu) => Some(Self {
                cpu,
                number: bits as u32,
            }),
            None => None,
        }
    }

    /// Whether this is behind the batches of which `served` have been executed.
    pub fn is_waiting(self, served: u32) -> bool {
        // The number of the first batch is 1. They are never half of all numbers apart.
        self.number.wrapping_sub(served).wrapping_sub(1) < u32::MAX / 2
    }
}

/// A backlog at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct BacklogState {
    /// Batches executed since the module was loaded; the number wraps.
    pub served: u32,
    /// Packets that wait.
    pub waiting: u32,
    /// Its CPU does not serve it in time: [`Punctuality::is_late`].
    pub late: bool,
    /// Its CPU sends bulk: [`sends_bulk`].
    pub sends: bool,
}

/// How long who has sent bulk is taken to send more, in [`tick`]s: 0.1 s.
const SENDING: u32 = 95;

/// A time in nanoseconds as a number of 2^20 of them, which wraps after 52 days.
pub const fn tick(now: u64) -> u32 {
    (now >> 20) as u32
}

/// Whether a QP or CPU that has sent bulk in this [`tick`], or never (0), is sending still. Who has
/// not sent for 52 days is taken for one that does, once.
pub const fn sends_bulk(sent_at: u32, now: u64) -> bool {
    // The time may be read before another CPU notes the next one.
    tick(now).wrapping_sub(sent_at).wrapping_add(1) <= SENDING
}

/// Where to execute what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    /// Here. The QP has nothing in a backlog.
    Here,
    /// Here, though the QP has packets in a backlog.
    Overtaking,
    /// On this CPU.
    To(u32),
}

/// What has arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrived {
    /// Bytes that arrived as one batch; `None` for a single packet, which is no batch.
    pub bytes: Option<u32>,
    /// The QP sends bulk itself.
    pub sends: bool,
    /// Another CPU, which sends bulk from the queue that this is for, while this CPU sends none.
    pub sender: Option<Sender>,
}

/// A CPU that sends bulk from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The CPU.
    pub cpu: u32,
    /// It holds the queue at the moment. Otherwise something waits there to be sent by it.
    pub holds: bool,
}

impl Sender {
    /// Set in a word if the queue is held.
    const HOLDS: u32 = 1 << 31;

    /// As one word that is not 0. No kernel has 2^16 CPUs.
    pub const fn to_bits(self) -> u32 {
        let held = if self.holds { Self::HOLDS } else { 0 };
        code(Some(self.cpu)) | held
    }

    /// The sender of such a word; 0 is none.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match numbered(bits & !Self::HOLDS) {
            Some(cpu) => Some(Self {
                cpu,
                holds: bits & Self::HOLDS != 0,
            }),
            None => None,
        }
    }
}

/// Decides for what has arrived.
///
/// `last` is the place of the QP, `backlog` looks at that of a CPU, and `choose` names a CPU for
/// a bulk batch.
#[inline]
pub fn steer(
    last: Option<QueuedBatch>,
    arrived: Arrived,
    backlog: impl Fn(u32) -> BacklogState,
    choose: impl FnOnce() -> Option<u32>,
) -> Steer {
    if let Some(place) = last {
        let found = backlog(place.cpu);
        if place.is_waiting(found.served) {
            return match found.waiting < MOST_PACKETS {
                true => Steer::To(place.cpu),
                false => Steer::Overtaking,
            };
        }
    }
    let is_bulk = arrived.bytes.is_some_and(|bytes| bytes >= BULK_BYTES);
    let cpu = match is_bulk {
        true if arrived.sends => None,
        true => choose(),
        false => arrived.sender.map(|sender| sender.cpu),
    };
    let Some(cpu) = cpu else {
        return Steer::Here;
    };
    let found = backlog(cpu);
    let declines = match arrived.sender {
        _ if is_bulk => found.late || found.sends,
        // Whoever executes it would wait for that CPU.
        Some(Sender { holds: true, .. }) => false,
        _ => found.late,
    };
    match found.waiting < JOINABLE && !declines {
        true => Steer::To(cpu),
        false => Steer::Here,
    }
}

/// Nanoseconds without progress, after which a backlog that is not empty is late. More than a batch
/// takes in an emulator, less than a host that is busy takes a CPU away for.
const LATE: u64 = 4_000_000;

/// Nanoseconds in which nothing was late, after which the next pause is a short one again.
const CALM: u64 = 128_000_000;

/// Whether a CPU serves its backlog in time. Times are nanoseconds of one clock.
#[derive(Debug, Default)]
pub struct Punctuality {
    /// The last progress: a batch was taken or executed, or has come to an empty backlog.
    since: AtomicU64,
    /// When it was last seen to be late.
    late_at: AtomicU64,
    /// Back-off from leaving batches to this CPU.
    back_off: Helper,
}

impl Punctuality {
    /// A batch is about to be queued, behind others or not.
    #[inline]
    pub fn queues(&self, is_first: bool, now: u64) {
        if is_first {
            self.since.store(now, Relaxed);
        }
    }

    /// A batch was taken or executed.
    #[inline]
    pub fn progress(&self, now: u64) {
        let delay = now.saturating_sub(self.since.load(Relaxed));
        self.since.store(now, Relaxed);
        if delay > LATE {
            self.back_off.judge(HelperVerdict::Declines, now);
            self.late_at.store(now, Relaxed);
        } else if now.saturating_sub(self.late_at.load(Relaxed)) > CALM {
            self.back_off.judge(HelperVerdict::Helps, now);
        }
    }

    /// Whether no other batch is to be left to it, where so many packets wait.
    #[inline]
    pub fn is_late(&self, waiting: u32, now: u64) -> bool {
        let delay = now.saturating_sub(self.since.load(Relaxed));
        !self.back_off.may_help(now) || (waiting != 0 && delay > LATE)
    }
}

/// The CPUs that may execute what arrives for a QP: see [`Self::other_than`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    /// Where its process was seen last.
    pub home: Option<u32>,
    /// Another one on which it may run.
    pub spare: Option<u32>,
}

/// A CPU in the upper half of a word, in which 0 is none.
const fn word(cpu: Option<u32>, low: u32) -> u64 {
    ((code(cpu) as u64) << 32) | low as u64
}

/// A CPU as a number that is not 0, and 0 for none.
pub const fn code(cpu: Option<u32>) -> u32 {
    match cpu {
        Some(cpu) => cpu.wrapping_add(1),
        None => 0,
    }
}

/// The CPU of a [`code`].
pub const fn numbered(code: u32) -> Option<u32> {
    code.checked_sub(1)
}

impl Homes {
    /// As one word; none is 0. No kernel has 2^16 CPUs.
    pub const fn to_bits(self) -> u32 {
        (code(self.home) << 16) | code(self.spare)
    }

    /// The CPUs of such a word.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            home: numbered(bits >> 16),
            spare: numbered(bits & 0xffff),
        }
    }

    /// The home, where the data will be wanted, or the spare CPU, if the packets arrive at home.
    pub fn other_than(self, here: u32) -> Option<u32> {
        [self.home, self.spare]
            .into_iter()
            .flatten()
            .find(|cpu| *cpu != here)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_steering)
)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    const BULK: Option<u32> = Some(BULK_BYTES);

    fn batch(bytes: Option<u32>) -> Arrived {
        Arrived {
            bytes,
            ..Arrived::default()
        }
    }

    fn from(cpu: u32, holds: bool) -> Arrived {
        Arrived {
            sender: Some(Sender { cpu, holds }),
            ..Arrived::default()
        }
    }

    fn held(by: u32) -> Arrived {
        from(by, true)
    }

    fn waited_for(by: u32) -> Arrived {
        from(by, false)
    }

    fn at(served: u32, waiting: u32) -> impl Fn(u32) -> BacklogState {
        move |_| BacklogState {
            served,
            waiting,
            ..BacklogState::default()
        }
    }

    #[test]
    fn bulk_goes_to_another_cpu() {
        assert_eq!(steer(None, batch(BULK), at(0, 0), || Some(3)), Steer::To(3));
        assert_eq!(steer(None, batch(BULK), at(0, 0), || None), Steer::Here);
        let long = at(0, JOINABLE);
        assert_eq!(steer(None, batch(BULK), long, || Some(3)), Steer::Here);
    }

    #[test]
    fn bulk_stays_while_the_other_cpu_declines() {
        let late = |_| BacklogState {
            late: true,
            ..BacklogState::default()
        };
        assert_eq!(steer(None, batch(BULK), late, || Some(3)), Steer::Here);
        let sends = |_| BacklogState {
            sends: true,
            ..BacklogState::default()
        };
        assert_eq!(steer(None, batch(BULK), sends, || Some(3)), Steer::Here);
        for (held, to) in [(held(5), Steer::To(5)), (waited_for(5), Steer::Here)] {
            assert_eq!(steer(None, held, late, || Some(3)), to);
        }
        let place = QueuedBatch { cpu: 2, number: 1 };
        let found = steer(Some(place), batch(BULK), late, || Some(3));
        assert_eq!(found, Steer::To(2));
    }

    #[test]
    fn bulk_stays_for_a_qp_that_sends_bulk() {
        let arrived = Arrived {
            sends: true,
            bytes: BULK,
            ..held(5)
        };
        assert_eq!(steer(None, arrived, at(0, 0), || Some(3)), Steer::Here);
        let place = QueuedBatch { cpu: 2, number: 1 };
        let found = steer(Some(place), arrived, at(0, 1), || Some(3));
        assert_eq!(found, Steer::To(2));
        let small = Arrived {
            bytes: None,
            ..arrived
        };
        assert_eq!(steer(None, small, at(0, 0), || Some(3)), Steer::To(5));
    }

    #[test]
    fn who_sends_bulk_gets_none_meanwhile() {
        let now = 1 << 40;
        assert!(!sends_bulk(0, now));
        let later = |ticks: u32| now + (u64::from(ticks) << 20);
        let sent_at = tick(now);
        assert!(sends_bulk(sent_at, now) && sends_bulk(sent_at + 1, now));
        assert!(sends_bulk(sent_at, later(SENDING - 1)) && !sends_bulk(sent_at, later(SENDING)));
    }

    #[test]
    fn who_was_late_is_left_alone_for_longer_each_time() {
        let cpu = Punctuality::default();
        let mut now = 1_000_000_000;
        cpu.queues(true, now);
        cpu.progress(now + LATE);
        assert!(!cpu.is_late(0, now + LATE));
        let mut pause = 0;
        for _ in 0..5 {
            cpu.queues(true, now);
            now += LATE + 1;
            assert!(cpu.is_late(1, now) && !cpu.is_late(0, now));
            cpu.progress(now);
            let before = core::mem::take(&mut pause);
            while cpu.is_late(0, now + pause) {
                pause += LATE / 64;
            }
            assert!(pause > before);
            now += pause;
        }
        // It serves in time again.
        for _ in 0..2 {
            now += CALM + 1;
            cpu.queues(true, now);
            cpu.progress(now);
        }
        now += LATE + 1;
        cpu.progress(now);
        assert!(!cpu.is_late(0, now + LATE / 2));
    }

    #[test]
    fn what_is_small_stays() {
        let small = Some(BULK_BYTES - 1);
        for bytes in [None, small] {
            assert_eq!(steer(None, batch(bytes), at(0, 0), || Some(3)), Steer::Here);
        }
    }

    #[test]
    fn what_is_small_goes_to_the_cpu_that_sends_from_its_queue() {
        for bytes in [None, Some(BULK_BYTES - 1)] {
            for from in [held(5), waited_for(5)] {
                let arrived = Arrived { bytes, ..from };
                assert_eq!(steer(None, arrived, at(0, 0), || Some(3)), Steer::To(5));
                let long = at(0, JOINABLE);
                assert_eq!(steer(None, arrived, long, || Some(3)), Steer::Here);
            }
        }
    }

    #[test]
    fn all_of_a_qp_follow_its_last_batch() {
        for number in [1, 7, u32::MAX, 0] {
            let place = QueuedBatch { cpu: 2, number };
            let before = number.wrapping_sub(1);
            for served in [before, before.wrapping_sub(5)] {
                for bytes in [None, BULK] {
                    for waiting in [1, JOINABLE, MOST_PACKETS - 1] {
                        let found =
                            steer(Some(place), batch(bytes), at(served, waiting), || Some(3));
                        assert_eq!(found, Steer::To(2));
                    }
                    let full = at(served, MOST_PACKETS);
                    let found = steer(Some(place), batch(bytes), full, || Some(3));
                    assert_eq!(found, Steer::Overtaking);
                }
            }
            for served in [number, number.wrapping_add(9)] {
                let found = steer(Some(place), batch(None), at(served, 1), || Some(3));
                assert_eq!(found, Steer::Here);
                let found = steer(Some(place), batch(BULK), at(served, 1), || Some(3));
                assert_eq!(found, Steer::To(3));
            }
        }
    }

    #[test]
    fn words_keep_what_they_are_made_of() {
        let place = QueuedBatch { cpu: 0, number: 0 };
        for place in [
            place,
            QueuedBatch {
                cpu: 63,
                number: u32::MAX,
            },
        ] {
            assert_eq!(QueuedBatch::from_bits(place.to_bits()), Some(place));
        }
        assert_eq!(QueuedBatch::from_bits(0), None);
        for home in [None, Some(0), Some(63)] {
            for spare in [None, Some(0), Some(5)] {
                let homes = Homes { home, spare };
                assert_eq!(Homes::from_bits(homes.to_bits()), homes);
            }
        }
        assert_eq!(Homes::default().to_bits(), 0);
        for cpu in [0, 63] {
            for holds in [false, true] {
                let sender = Sender { cpu, holds };
                assert_eq!(Sender::from_bits(sender.to_bits()), Some(sender));
            }
        }
        assert_eq!(Sender::from_bits(0), None);
    }

    #[test]
    fn a_home_is_preferred() {
        let homes = Homes {
            home: Some(1),
            spare: Some(2),
        };
        assert_eq!(homes.other_than(0), Some(1));
        assert_eq!(homes.other_than(1), Some(2));
        let alone = Homes {
            home: Some(1),
            spare: None,
        };
        assert_eq!(alone.other_than(1), None);
        assert_eq!(Homes::default().other_than(1), None);
    }
}
