// SPDX-License-Identifier: GPL-2.0

//! Trace events: `ferroce:*` of tracefs, perf and bpf. Documentation/tracing.md lists them.
//!
//! Each has a function that takes a closure, which runs only while somebody traces the event. Until
//! then an event is one NOP, and its arguments are not evaluated. A closure on a hot path is a
//! `move` of copies: what it borrows would be in memory, traced or not. `ferroce_trace.h` has the
//! fields, and `ferroce_trace_names.h` the names of their numbers: `tests/lab/rules.py` compares
//! these with the enums here and in the rooms above.

use super::bindings;
#[cfg(CONFIG_TRACEPOINTS)]
use kernel::macros::paste;

pub use bindings::{
    ferroce_trace_ack as Ack,
    ferroce_trace_complete as Complete,
    ferroce_trace_doorbell as Doorbell,
    ferroce_trace_handed as Handed,
    ferroce_trace_key as Key,
    ferroce_trace_offload as OffloadChange,
    ferroce_trace_packet as Packet,
    ferroce_trace_qp as NewQp,
    ferroce_trace_qp_state as QpStateChange,
    ferroce_trace_recover as Recover,
    ferroce_trace_request as Request,
    ferroce_trace_taken as Taken,
    ferroce_trace_timer as Timer,
    ferroce_trace_unsent as UnsentPackets, //
};

/// Bytes of the headers in a [`Packet`]: the BTH and the longest extended headers.
pub const HEAD: usize = bindings::FERROCE_TRACE_HEAD as usize;

/// Makes the function of an event, which is called `ferroce_` and this name.
macro_rules! events {
    ($($(#[$doc:meta])* $vis:vis $name:ident: $event:ty;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        $vis fn $name<E: Into<Option<$event>>>(event: impl FnOnce() -> E) {
            #[cfg(CONFIG_TRACEPOINTS)]
            paste! {
                #[cold]
                #[inline(never)]
                fn emit<E: Into<Option<$event>>>(event: E) {
                    if let Some(event) = event.into() {
                        // SAFETY: The event is valid during the call, and so is what it points to.
                        unsafe { bindings::[<rust_do_trace_ferroce_ $name>](&event) };
                    }
                }

                // SAFETY: It is the key of a tracepoint, which helpers.c defines.
                let is_on = unsafe {
                    kernel::jump_label::static_branch_unlikely!(
                        bindings::[<__tracepoint_ferroce_ $name>],
                        bindings::tracepoint,
                        key
                    )
                };
                if is_on {
                    // The closure is called here, inlined, and not handed over: handed over it
                    // would be in memory, which the compiler writes in front of the branch.
                    emit(event());
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = event;
        }
    )*};
}

events! {
    verb: bindings::ferroce_trace_verb;
    verb_done: bindings::ferroce_trace_verb_done;
    pub(super) qp: NewQp;
    /// A QP has another state.
    pub qp_state: QpStateChange;
    /// A doorbell of a send queue, and who serves it.
    pub doorbell: Doorbell;
    /// A WQE was copied from the ring.
    pub taken: Taken;
    /// A packet is made and leaves in a batch, unless an event `unsent` follows.
    pub tx: Packet;
    /// Packets have not left.
    pub unsent: UnsentPackets;
    /// A packet was received.
    pub rx: Packet;
    /// A packet, or a segment of the local path, was dropped.
    pub drop: Packet;
    /// A segment was handed over on the local path.
    pub handed: Handed;
    /// A request has come to its end at the responder.
    pub request: Request;
    /// An acknowledgement reaches the requester.
    pub ack: Ack;
    /// The requester repairs a loss, or gives up.
    pub recover: Recover;
    /// A CQE is added.
    pub complete: Complete;
    pub(super) cq_event: bindings::ferroce_trace_cq_event;
    async_event: bindings::ferroce_trace_async_event;
    /// A key leads to other memory, or nowhere.
    pub key: Key;
    /// The timer of a QP has expired.
    pub timer: Timer;
    /// Another CPU, worker or timer transmits.
    pub offload: OffloadChange;
}

/// ib_core calls a verb. `device` is null if no argument names it.
///
/// # Safety
///
/// The device must be null or valid.
#[inline(always)]
pub(super) unsafe fn verb_of(
    name: &'static str,
    device: impl FnOnce() -> *const bindings::ib_device,
) {
    verb(move || bindings::ferroce_trace_verb {
        name: name.as_ptr().cast(),
        name_len: name.len() as u32,
        device: device(),
    });
}

/// The verb is over: 0, or an errno.
#[inline(always)]
pub(super) fn verb_returns<T>(name: &'static str, result: &kernel::error::Result<T>) {
    let ret = result.as_ref().map_or_else(|error| error.to_errno(), |_| 0);
    verb_done(move || bindings::ferroce_trace_verb_done {
        name: name.as_ptr().cast(),
        name_len: name.len() as u32,
        ret,
    });
}

/// An asynchronous event goes to the user of `object`.
///
/// # Safety
///
/// The device must be valid.
#[inline(always)]
pub(super) unsafe fn asynchronous(
    object: AsyncObject,
    device: *const bindings::ib_device,
    id: impl FnOnce() -> u32,
    event: bindings::ib_event_type,
) {
    async_event(|| bindings::ferroce_trace_async_event {
        device,
        object: object as u32,
        id: id(),
        event,
    });
}

/// Something happens to an event of a CQ.
///
/// # Safety
///
/// The CQ must be valid.
#[inline(always)]
pub(super) unsafe fn cq_news(cq: *const bindings::ib_cq, what: CqNews) {
    // SAFETY: By the requirement.
    cq_event(|| unsafe {
        bindings::ferroce_trace_cq_event {
            device: (*cq).device,
            cq: (*cq).res.id,
            what: what as u32,
        }
    });
}

/// Why a QP has another state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateCause {
    /// The user wanted it, or the device goes.
    User,
    /// A send WQE ended in error.
    SendError,
    /// A completion says why.
    Error,
    /// No completion can say why: `IBV_EVENT_QP_FATAL`.
    Fatal,
}

/// What a requester does about a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Packets were sent again.
    Retransmitted,
    /// The ACK timeout has passed.
    Timeout,
    /// An RNR NAK came: it waits.
    RnrNak,
    /// A NAK said that a packet is missing.
    SequenceNak,
    /// A later response says that a READ response is missing.
    ImpliedNak,
    /// The responder has refused a request: the connection ends.
    FatalNak,
    /// The last packet was sent once more, because nothing came back.
    TailProbe,
    /// A response to a completed request was ignored.
    DuplicateResponse,
    /// A response to a request that was never sent was ignored.
    UnexpectedResponse,
    /// A READ response behind a gap was ignored.
    OutOfSequenceResponse,
    /// A response broke the rules: the connection ends.
    BadResponse,
    /// The window shrank, because the network marks packets.
    Slowdown,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEnd {
    /// It was executed.
    Executed,
    /// It had been executed before.
    Duplicate,
    /// A packet before it is missing.
    OutOfSequence,
    /// A packet before it is missing, and it is kept until that comes.
    Kept,
    /// No receive was posted.
    NoReceive,
    /// Its PSN is none that the peer can have.
    OutsideWindow,
    /// It asks again for what was never asked for.
    UnknownRead,
    /// The responder is not connected, or has stopped.
    NotReady,
    /// Fatal: the peer broke the protocol.
    InvalidRequest,
    /// Fatal: the peer lacks a right.
    AccessError,
    /// Fatal: a receive cannot be used.
    LocalError,
    /// Its message is longer than the receive (UC, UD).
    TooLong,
    /// Its message may not write there (UC).
    Denied,
    /// It breaks the rules of messages (UC, UD).
    Invalid,
}

/// Who serves a doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoorbellServer {
    /// The invocation that the doorbell began.
    Inline,
    /// The same; a worker on another CPU is asked whether it can.
    Invites,
    /// A worker on a CPU that has sent before.
    Near,
    /// A worker on another CPU.
    Far,
    /// A timer.
    Timer,
    /// A worker, once packets in flight from another CPU are acknowledged.
    Moving,
    /// The context that is in charge already.
    Other,
}

/// Why packets did not leave, and what becomes of them. The local stack has refused them:
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// They are sent again soon.
    Again,
    /// They count as lost.
    Lost,
}

/// What happens to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyAction {
    /// Memory is registered under it.
    Register,
    /// Other memory, rights or domain.
    Reregister,
    /// The registration ends.
    Deregister,
    /// A memory window is bound.
    Bind,
    /// A key is invalidated.
    Invalidate,
    /// A ULP registers memory by a work request.
    Fast,
}

/// What happens to an event of a CQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CqNews {
    /// The CQ was armed for the completion: the event is on its way.
    Raised,
    /// It was armed, and moderation holds the event back.
    HeldBack,
    /// The handler of the user is called.
    Delivered,
    /// The completion was lost: the CQ is full.
    Overrun,
}

/// What an asynchronous event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncObject {
    /// A CQ.
    Cq,
    /// A QP.
    Qp,
    /// An SRQ.
    Srq,
}

/// Why another one transmits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadCause {
    /// The process streams.
    Streams,
    /// The worker that was invited found its CPU idle.
    Taken,
    /// It did not, or there are packets in flight that may never be acknowledged.
    Declined,
    /// More is to be sent than one invocation may.
    Budget,
    /// Packets in flight have left from another CPU.
    InFlight,
    /// The packets in flight are acknowledged, or a timer has expired.
    Acknowledged,
    /// Another task wants the CPU of the worker, or the worker is too slow.
    NoHelp,
    /// Nothing is left to send.
    Idle,
    /// The QP was reset, or failed.
    Ended,
}
