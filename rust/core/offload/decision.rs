// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the owner of a send queue reports to its [`Offload`](super::Offload), and the decisions
//! that it carries out.

/// Packets that were sent and are neither acknowledged nor given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InFlight {
    /// None, or no packets at all, or their order does not matter: the next one may leave from any
    /// CPU.
    Nothing,
    /// Some, with a guaranteed end: the last one requests an ACK, and a timeout gives up on it.
    Awaited,
    /// Some, without a guaranteed end: nothing may wait for them.
    Unbounded,
}

/// The event that makes a queue look for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadEvent {
    /// An ACK, a response, a further run of a doorbell, a post by a ULP: there may be work.
    Progress {
        /// Whether there may be something to send.
        unsent: bool,
    },
    /// A timer of the queue expired: a retransmission is due, or a back-off has ended.
    Deadline,
}

/// Place and time of an event. `C` names a CPU.
#[derive(Clone, Copy, Debug)]
pub struct SchedPoint<C> {
    /// The CPU of the event.
    pub here: C,
    /// Its time, in nanoseconds of one clock.
    pub now: u64,
    /// Packets in flight at that time.
    pub in_flight: InFlight,
}

/// A worker of a queue: one of two work items, or a timer. A running work item cannot be queued on
/// another CPU, so a move uses the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// Work item on a CPU that has sent before.
    Near,
    /// Work item on another CPU than that of the process.
    Far,
    /// The timer, on the CPU where it is armed.
    Timer,
}

/// A call of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerCall<C> {
    /// The worker.
    pub worker: Worker,
    /// Its CPU. The timer is armed where it will run.
    pub cpu: C,
    /// Delay of the timer, in periods of [`Rounds`](super::budget::Rounds); 0 for work items.
    pub periods: u32,
}

/// The decision for an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Decision<C> {
    /// Transmit here.
    Send,
    /// Transmit here, and call this worker, which may take over. Doorbells are needed until it
    /// does.
    Invite(WorkerCall<C>),
    /// Leave the work to this worker, which must be called. No doorbell is needed from now on.
    Leave(WorkerCall<C>),
    /// Leave the work to the timer, the first of these, and call the other one, which may take
    /// over. No doorbell is needed from now on.
    LeaveInviting(WorkerCall<C>, WorkerCall<C>),
    /// Wait until the packets in flight are acknowledged; that calls a worker. No doorbell is
    /// needed from now on.
    Wait,
    /// Do nothing: a worker is in charge, or there is nothing to send.
    Nothing,
}

/// The decision after a run of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum AfterRun<C> {
    /// Call it for another run.
    Again(WorkerCall<C>),
    /// Ask for doorbells, look at the ring once more, then call
    /// [`Offload::rest`](super::Offload::rest).
    Rest,
    /// It did not help: return the queue to the CPU of its process, by this decision.
    MoveBack(Decision<C>),
}

/// Counts of moves between CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// To another CPU, because the process streams.
    pub away: u32,
    /// Back from there, or not there at all, because that CPU had other work.
    pub back: u32,
    /// To a timer on the same CPU.
    pub polled: u32,
}

/// Who transmits for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SenderKind {
    /// Whatever happens: a doorbell, an acknowledgement.
    #[default]
    Inline,
    /// The same, while a worker on another CPU is invited.
    Inviting,
    /// A worker on a CPU that has sent before.
    Near,
    /// A worker on another CPU than that of the process.
    Far,
    /// Nobody, until the packets in flight are acknowledged.
    Moving,
    /// The timer.
    Polling,
}
