// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Send and receive queues: a list of work requests is written into a ring, and the module is woken
//! if it wants to be.

use super::{
    ah,
    layout::*,
    library::library,
    mapping::Ring,
    memory::{nap, sg_list},
    probe,
};
use crate::refusal::reject;
use crate::{
    doorbell::{self, Doorbell},
    lock::Lock,
    request::{encode_recv, encode_send, RecvLimits, SendLimits, Slot},
    ring::Cursor,
};
use core::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};
use ferroce_core::uabi::{
    ring::{
        Provider,
        Words, //
    },
    udata,
    wqe::Sge, //
};
use libc::{EACCES, EAGAIN, EINTR, EINVAL, ENOMEM, EPROTO};
use std::thread;
use zerocopy::IntoBytes;

/// A work request of libibverbs, for one kind of queue.
pub trait WorkRequest: Sized {
    /// Which queue of a QP it is.
    const QUEUE: doorbell::Queue;
    /// The WQEs of a queue of this kind.
    type Limits;
    /// The next request of the list, or null.
    fn next(&self) -> *mut Self;
    /// The scatter/gather list of the request, as the application gives it.
    fn sges(&self) -> (*const Sge, c_int);
    /// Writes the request into a slot, or says with an errno why it cannot be.
    fn encode(&self, slot: &impl Slot, sges: &[Sge], limits: &Self::Limits) -> Result<(), c_int>;
    /// The request has got a slot of a queue of this QP: the probe of that.
    fn posted(&self, qp: *const IbvQp, index: u32);
    /// Sends the list to the module by system call. An empty one is the doorbell of the queue.
    ///
    /// # Safety
    ///
    /// As the verb itself.
    unsafe fn command(qp: *mut IbvQp, list: *mut Self, bad: *mut *mut Self) -> c_int;
}

impl WorkRequest for IbvSendWr {
    const QUEUE: doorbell::Queue = doorbell::Queue::Send;
    type Limits = SendLimits;

    fn next(&self) -> *mut Self {
        self.next
    }

    fn sges(&self) -> (*const Sge, c_int) {
        (self.sg_list, self.num_sge)
    }

    #[inline]
    fn encode(&self, slot: &impl Slot, sges: &[Sge], limits: &SendLimits) -> Result<(), c_int> {
        // SAFETY: The caller keeps the contract of `ibv_post_send`: the queue pair is one of
        // datagrams, and there the application names a handle that it has made.
        let number = || unsafe { ah::number(self.address_handle() as *const IbvAh) };
        encode_send(slot, self, sges, limits, number)
    }

    #[inline]
    fn posted(&self, qp: *const IbvQp, index: u32) {
        probe::post_send(qp, self, index);
    }

    unsafe fn command(qp: *mut IbvQp, list: *mut Self, bad: *mut *mut Self) -> c_int {
        // SAFETY: The caller's promise.
        unsafe { (library().ibv_cmd_post_send)(qp, list, bad) }
    }
}

impl WorkRequest for IbvRecvWr {
    const QUEUE: doorbell::Queue = doorbell::Queue::Recv;
    type Limits = RecvLimits;

    fn next(&self) -> *mut Self {
        self.next
    }

    fn sges(&self) -> (*const Sge, c_int) {
        (self.sg_list, self.num_sge)
    }

    #[inline]
    fn encode(&self, slot: &impl Slot, sges: &[Sge], limits: &RecvLimits) -> Result<(), c_int> {
        encode_recv(slot, self, sges, limits)
    }

    #[inline]
    fn posted(&self, qp: *const IbvQp, index: u32) {
        probe::post_recv(qp, self, index);
    }

    unsafe fn command(qp: *mut IbvQp, list: *mut Self, bad: *mut *mut Self) -> c_int {
        // SAFETY: The caller's promise.
        unsafe { (library().ibv_cmd_post_recv)(qp, list, bad) }
    }
}

/// A send or receive queue.
pub struct WorkQueue<W: WorkRequest> {
    ring: Ring,
    cursor: Cursor,
    /// Most requests at a time.
    limit: u32,
    limits: W::Limits,
    lock: Lock,
    /// The kernel refuses writes to the command file in this process. Another file may be this
    /// process's own, so each queue finds out for itself.
    writes_refused: AtomicBool,
}

impl<W: WorkRequest> WorkQueue<W> {
    /// Maps a queue of `max_wr` requests, which one thread at a time uses if `single`; `None` if
    /// the module has none because none was asked for.
    pub fn map(
        cmd_fd: c_int,
        map: &udata::RingMap,
        max_wr: u32,
        stride: u32,
        limits: W::Limits,
        single: bool,
    ) -> Result<Option<Self>, c_int> {
        if map.length == 0 {
            return if max_wr == 0 { Ok(None) } else { Err(EPROTO) };
        }
        let ring = Ring::map(cmd_fd, map, stride)?;
        let cursor = Cursor::default();
        // The module begins at 0; but it has the last word on what was consumed.
        cursor.reset(ring.load_consumer());
        let limit = max_wr.min(ring.entries());
        Ok(Some(Self {
            ring,
            cursor,
            limit,
            limits,
            lock: Lock::new(single),
            writes_refused: AtomicBool::new(false),
        }))
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The module has moved the requests to another ring, under the indices that they have.
    pub fn move_to(&mut self, ring: Ring) {
        self.limit = ring.entries();
        self.ring = ring;
    }

    /// Takes no more requests.
    pub fn close(&mut self) {
        self.limit = 0;
    }

    /// Whether it takes none.
    pub fn is_closed(&self) -> bool {
        self.limit == 0
    }

    /// Forgets all requests: the module has emptied the queue.
    pub fn reset(&self) {
        self.lock.with(|| {
            let index = self.ring.load_consumer();
            self.cursor.reset(index);
            self.ring.store_producer(index);
        });
    }

    /// Posts a list. The error is an errno and the first request that was not taken; those before
    /// it are under way. A doorbell that fails for good is reported at the first request, for then
    /// none of them will run.
    ///
    /// # Safety
    ///
    /// `qp` is the QP of this queue, and `list` keeps the contract of the verb.
    #[inline]
    unsafe fn post(&self, qp: *mut IbvQp, list: *mut W) -> Result<(), (*mut W, c_int)> {
        self.lock.acquire();
        // SAFETY: The caller's promise.
        let (published, taken) = unsafe { self.publish(list, |wr, index| wr.posted(qp, index)) };
        self.lock.release();
        if published && self.ring.needs_doorbell() {
            // SAFETY: The caller's promise.
            unsafe { self.ring_doorbell(qp) }.map_err(|error| (list, error))?;
        }
        taken
    }

    /// Writes a list into the ring and publishes it; tells whether there was something, and the
    /// first request that was not taken. `posted` hears of each that was, with its index.
    ///
    /// # Safety
    ///
    /// `list` keeps the contract of the verb. The lock is held, or no other thread uses the queue.
    #[inline]
    pub unsafe fn publish(
        &self,
        list: *mut W,
        posted: impl Fn(&W, u32),
    ) -> (bool, Result<(), (*mut W, c_int)>) {
        let start = self.cursor.own();
        // SAFETY: The caller's promise.
        let (end, taken) = unsafe { self.fill(start, list, posted) };
        if end != start {
            self.cursor.set_own(end);
            self.ring.store_producer(end);
        }
        (end != start, taken)
    }

    /// Writes requests into the slots from `index` on, up to the first that cannot be taken.
    /// Returns the index behind the last one.
    ///
    /// # Safety
    ///
    /// `list` keeps the contract of the verb. The lock is held.
    #[inline]
    unsafe fn fill(
        &self,
        mut index: u32,
        list: *mut W,
        posted: impl Fn(&W, u32),
    ) -> (u32, Result<(), (*mut W, c_int)>) {
        let mut wr = list;
        while !wr.is_null() {
            // SAFETY: Contract of the verb: a valid request.
            let request = unsafe { &*wr };
            let (sges, count) = request.sges();
            // SAFETY: Contract of the verb: the list has the length that the request says, and its
            // pieces are readable.
            let result = unsafe { sg_list(sges, count) }.and_then(|sges| {
                let consumer = || self.ring.load_consumer();
                if !self.cursor.has_room(index, self.limit, consumer) {
                    return Err(ENOMEM);
                }
                // SAFETY: As above.
                let slot = unsafe { self.ring.slot_for_post(index) };
                request.encode(&slot, sges, &self.limits)
            });
            if let Err(error) = result {
                return (index, Err((wr, error)));
            }
            posted(request, index);
            index = index.wrapping_add(1);
            wr = request.next();
        }
        (index, Ok(()))
    }

    /// Makes the module look at the queue.
    ///
    /// A write to the command file is the shortest way. The kernel refuses it in a process whose
    /// credentials are not those of the one that opened the file (after setuid, capset or daemon);
    /// from then on the same command goes by libibverbs, as an ioctl, which costs a quarter more
    /// for a message of its own.
    ///
    /// # Errors
    ///
    /// What is final: the requests are in the ring, so giving up for want of memory would report as
    /// refused what the next doorbell makes run. What is left (EIO of a device that is gone,
    /// above all) means that nothing of this QP will run again.
    ///
    /// # Safety
    ///
    /// `qp` is the QP of this queue.
    unsafe fn ring_doorbell(&self, qp: *mut IbvQp) -> Result<(), c_int> {
        /// Attempts that yield before they sleep.
        const YIELDS: u32 = 100;
        const NAP: u32 = 1_000;
        let mut attempts = 0u32;
        probe::doorbell(qp, W::QUEUE);
        loop {
            let by_write = !self.writes_refused.load(Ordering::Relaxed);
            let error = if by_write {
                // SAFETY: The caller's promise.
                unsafe { Self::write_doorbell(qp) }
            } else {
                let mut bad = ptr::null_mut();
                // SAFETY: The caller's promise; an empty list is one.
                unsafe { W::command(qp, ptr::null_mut(), &mut bad) }
            };
            match error {
                0 => return Ok(()),
                EINTR => (),
                EACCES if by_write => self.writes_refused.store(true, Ordering::Relaxed),
                ENOMEM | EAGAIN if attempts < YIELDS => thread::yield_now(),
                ENOMEM | EAGAIN => nap(NAP),
                error => return Err(error),
            }
            attempts = attempts.saturating_add(1);
        }
    }

    /// The doorbell as a write; returns 0 or an errno. It is made by its number, since `write()` is
    /// a cancellation point, which the verbs are not.
    ///
    /// # Safety
    ///
    /// `qp` is the QP of this queue.
    unsafe fn write_doorbell(qp: *mut IbvQp) -> c_int {
        let mut response: doorbell::Response = 0;
        // SAFETY: The caller's promise; the context of a QP lives as long as the QP.
        let (cmd_fd, handle) = unsafe { ((*(*qp).context).cmd_fd, (*qp).handle) };
        let command = Doorbell::new(W::QUEUE, handle, (&raw mut response) as u64);
        let bytes = command.as_bytes();
        // SAFETY: The command is readable for its length; uverbs writes the response, which is as
        // long as the command says and lives until the call returns.
        let written =
            unsafe { libc::syscall(libc::SYS_write, cmd_fd, bytes.as_ptr(), bytes.len()) };
        if written >= 0 {
            return 0;
        }
        // SAFETY: No requirements.
        unsafe { *libc::__errno_location() }
    }
}

impl WorkQueue<IbvSendWr> {
    /// The WQEs it takes.
    pub fn limits(&self) -> &SendLimits {
        &self.limits
    }

    /// Keeps others from posting until [`Self::end_session`]; the index of the next slot.
    pub fn open(&self) -> u32 {
        self.lock.acquire();
        self.cursor.own()
    }

    /// The same again, for a caller that has opened it.
    pub fn open_at(&self) -> u32 {
        self.cursor.own()
    }

    /// The slot at `index`, if there is room for a request.
    ///
    /// # Safety
    ///
    /// As [`Ring::slot_for_post`]; and the queue is open.
    pub unsafe fn slot(&self, index: u32) -> Result<impl Slot + '_, c_int> {
        let consumer = || self.ring.load_consumer();
        if !self.cursor.has_room(index, self.limit, consumer) {
            return Err(ENOMEM);
        }
        // SAFETY: The caller's promise.
        Ok(unsafe { self.ring.slot_for_post(index) })
    }

    /// Posts the requests before `end`, if there are any, and lets others post again.
    ///
    /// # Safety
    ///
    /// `qp` is the QP of this queue, which is open, and the slots before `end` are filled.
    pub unsafe fn end_session(&self, qp: *mut IbvQp, end: u32) -> Result<(), c_int> {
        let is_new = end != self.cursor.own();
        if is_new {
            self.cursor.set_own(end);
            self.ring.store_producer(end);
        }
        self.lock.release();
        if is_new && self.ring.needs_doorbell() {
            // SAFETY: The caller's promise.
            unsafe { self.ring_doorbell(qp) }?;
        }
        Ok(())
    }
}

#[cold]
pub fn not_ready() -> c_int {
    reject(
        EINVAL,
        "the queue pair takes no such request in its state (sends from RTS on, receives from INIT \
         on, none of its own with an SRQ)",
    )
}

/// The verb: posts `list` to `queue`, if there is one and the QP is `ready`. Returns 0, or a
/// positive errno with `*bad_wr` at the first request that was not taken.
///
/// # Safety
///
/// `qp` is the QP of the queue, and the arguments keep the contract of the verb.
#[inline]
pub unsafe fn post<W: WorkRequest>(
    queue: Option<&WorkQueue<W>>,
    ready: bool,
    qp: *mut IbvQp,
    list: *mut W,
    bad_wr: *mut *mut W,
) -> c_int {
    if list.is_null() {
        return 0;
    }
    let result = match queue {
        _ if !ready => Err((list, not_ready())),
        None => Err((list, ENOMEM)),
        // SAFETY: The caller's promise.
        Some(queue) => unsafe { queue.post(qp, list) },
    };
    match result {
        Ok(()) => 0,
        Err((bad, error)) => {
            // SAFETY: The caller's promise.
            unsafe { bad_wr.write(bad) };
            error
        }
    }
}
