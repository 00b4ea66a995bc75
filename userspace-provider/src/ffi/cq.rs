// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Completion queues: the verbs that every application uses.

use super::{
    layout::*,
    library::library,
    limits::DeviceLimits,
    log,
    mapping::Ring,
    memory::{fail, Object},
    probe,
};
use crate::{
    completion::decode,
    lock::Lock,
    refusal::by_kernel,
    ring::{take_out, Cursor, Scribbled},
};
use core::{
    cell::UnsafeCell,
    ffi::c_int,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};
use ferroce_core::uabi::{
    cqe::{
        Cqe,
        CQE_STRIDE, //
    },
    ring::{
        Provider,
        Words,
        ARM_NEXT,
        ARM_SOLICITED, //
    },
    udata::{
        self,
        RingMap, //
    },
};

/// A completion queue. libibverbs and the application know it by its first member.
#[repr(C)]
pub struct Cq {
    pub ibv: IbvCqEx,
    /// The current completion of the extended interface.
    pub current: Cqe,
    /// What the time of day was ahead of the clock of completions when polling began.
    pub wallclock: u64,
    queue: Option<CompletionQueue>,
}

/// The provider's part of a completion queue.
struct CompletionQueue {
    /// Replaced with both locks held; used with one of them held.
    ring: UnsafeCell<Ring>,
    cursor: Cursor,
    lock: Lock,
    /// Held while arming, which may happen between `start_poll` and `end_poll`. Taken after the
    /// other.
    arming: Lock,
    /// The thread that is between `start_poll` and `end_poll`, and so holds the lock; 0 is none.
    poller: AtomicUsize,
    /// Where the round of that thread has begun.
    began: AtomicU32,
    /// The process that has made the queue. A child of fork() has a copy, with a lock that may be
    /// held by a thread which it has not.
    pid: libc::pid_t,
}

/// This thread, in a form that is never 0.
fn this_thread() -> usize {
    // SAFETY: It has no requirements.
    unsafe { libc::pthread_self() as usize }
}

impl Cq {
    /// A CQ of zeros, not yet known to the kernel.
    pub fn new() -> Result<Object<Cq>, c_int> {
        // SAFETY: All zeros are valid: there are integers, pointers and optional function pointers
        // in the C part, integers in `current` and `wallclock`; and `queue` is written before
        // anything reads it.
        let cq = unsafe { Object::<Cq>::zeroed() }?;
        // SAFETY: The object is ours alone.
        unsafe { (&raw mut (*cq.as_ptr()).queue).write(None) };
        Ok(cq)
    }

    /// Maps the queue of a CQ that the kernel has made, for one thread at a time if it is `single`.
    /// On failure the kernel's CQ is destroyed.
    pub fn finish(
        cq: Object<Cq>,
        cmd_fd: c_int,
        map: &RingMap,
        single: bool,
    ) -> Result<*mut Cq, c_int> {
        match Ring::map(cmd_fd, map, CQE_STRIDE) {
            Ok(ring) => {
                let cursor = Cursor::default();
                // The module begins at 0; but it has the last word on what was consumed.
                cursor.reset(ring.load_consumer());
                let queue = CompletionQueue {
                    ring: UnsafeCell::new(ring),
                    cursor,
                    lock: Lock::new(single),
                    arming: Lock::new(single),
                    poller: AtomicUsize::new(0),
                    began: AtomicU32::new(0),
                    // SAFETY: It has no requirements.
                    pid: unsafe { libc::getpid() },
                };
                // SAFETY: The object is ours alone until it is handed out.
                unsafe { (&raw mut (*cq.as_ptr()).queue).write(Some(queue)) };
                Ok(cq.leak())
            }
            Err(error) => {
                // SAFETY: The kernel has made this CQ, and no other code knows it.
                unsafe { (library().ibv_cmd_destroy_cq)(cq.as_ptr().cast()) };
                Err(error)
            }
        }
    }

    /// The provider's part of a CQ.
    ///
    /// # Safety
    ///
    /// `cq` must be from [`Cq::finish`] and not destroyed in `'a`.
    unsafe fn queue<'a>(cq: *mut Cq) -> &'a CompletionQueue {
        // SAFETY: The caller's promise. Only this member is borrowed: the C part changes under us.
        let queue = unsafe { &(*cq).queue };
        queue.as_ref().expect("a CQ in use has its ring")
    }

    /// Takes the lock for a round of extended polling.
    ///
    /// # Safety
    ///
    /// As [`Cq::queue`].
    pub unsafe fn begin(cq: *mut Cq) {
        // SAFETY: The caller's promise.
        let queue = unsafe { Cq::queue(cq) };
        queue.lock.acquire();
        queue.poller.store(this_thread(), Ordering::Relaxed);
        queue.began.store(queue.cursor.own(), Ordering::Relaxed);
    }

    /// Takes the next completion, with the lock held.
    ///
    /// # Safety
    ///
    /// As [`Cq::queue`].
    pub unsafe fn next(cq: *mut Cq) -> Result<Option<Cqe>, Scribbled> {
        // SAFETY: The caller's promise; the lock is held.
        unsafe { Cq::queue(cq).next() }
    }

    /// Returns the consumed entries, and the lock. If nothing was consumed, the word that the
    /// module reads is not written.
    ///
    /// # Safety
    ///
    /// As [`Cq::queue`].
    pub unsafe fn end(cq: *mut Cq) {
        // SAFETY: The caller's promise.
        let queue = unsafe { Cq::queue(cq) };
        let own = queue.cursor.own();
        if own != queue.began.load(Ordering::Relaxed) {
            // SAFETY: The lock is held.
            unsafe { queue.ring() }.store_consumer(own);
        }
        queue.poller.store(0, Ordering::Relaxed);
        queue.lock.release();
    }

    /// Takes the completions of a QP out that were not polled. In a child of fork(), which has no
    /// ring, there are none.
    ///
    /// # Safety
    ///
    /// As [`Cq::queue`]. The module completes nothing more under this number.
    pub unsafe fn forget(cq: *mut Cq, qp_num: u32) {
        // SAFETY: The caller's promise.
        let queue = unsafe { Cq::queue(cq) };
        // SAFETY: It has no requirements.
        if queue.pid != unsafe { libc::getpid() } {
            return;
        }
        queue.exclusively(|| {
            // SAFETY: The lock is held.
            let ring = unsafe { queue.ring() };
            if ring.is_here() {
                queue.forget(ring, qp_num);
                ring.store_consumer(queue.cursor.own());
            }
        });
    }
}

impl CompletionQueue {
    /// The ring, as it is now.
    ///
    /// # Safety
    ///
    /// One of the locks is held as long as the ring is used.
    #[inline]
    unsafe fn ring(&self) -> &Ring {
        // SAFETY: The caller's promise: the code that replaces the ring holds both locks.
        unsafe { &*self.ring.get() }
    }

    /// Runs `f` with the lock held. A thread that is polling has it already: what it has taken by
    /// then counts as consumed, for it has its copy.
    fn exclusively<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.poller.load(Ordering::Relaxed) == this_thread() {
            return f();
        }
        self.lock.with(f)
    }

    /// Takes the next completion out of the ring, without giving its slot back yet.
    ///
    /// # Safety
    ///
    /// The lock is held.
    #[inline]
    unsafe fn next(&self) -> Result<Option<Cqe>, Scribbled> {
        // SAFETY: The caller's promise.
        let ring = unsafe { self.ring() };
        let index = self.cursor.own();
        let producer = || ring.load_producer();
        if !self.cursor.has_entry(index, ring.entries(), producer)? {
            return Ok(None);
        }
        let cqe = ring.take::<Cqe>(index);
        self.cursor.set_own(index.wrapping_add(1));
        Ok(Some(cqe))
    }

    /// Takes the completions of a QP out, with the lock held: the others keep their order, and the
    /// slots that become free are the first. The module writes only behind the producer's index.
    fn forget(&self, ring: &Ring, qp_num: u32) {
        let first = self.cursor.own();
        let producer = || ring.load_producer();
        // Nothing can be said about a corrupt ring: polling reports it.
        let Ok(end) = self.cursor.look(first, ring.entries(), producer) else {
            return;
        };
        let left = take_out(
            first,
            end,
            |index| ring.take::<Cqe>(index).qp_num != qp_num,
            |from, to| ring.copy(from, to),
        );
        self.cursor.set_own(left);
    }

    /// Has the module move the queue to another ring by `command`, and maps that.
    ///
    /// # Errors
    ///
    /// What `command` returns; then nothing has changed. What mapping the new ring returns; then
    /// the module is there and this process is not, and polling returns EIO.
    ///
    /// # Safety
    ///
    /// The lock is held.
    unsafe fn resize(
        &self,
        cmd_fd: c_int,
        command: impl FnOnce() -> Result<RingMap, c_int>,
    ) -> Result<(), c_int> {
        // SAFETY: The caller's promise; and this lock as well.
        let place = self.ring.get();
        self.arming.with(|| {
            // SAFETY: Both locks are held, so nothing else refers to the ring.
            let ring = unsafe { &mut *place };
            // The module copies the unconsumed completions.
            ring.store_consumer(self.cursor.own());
            let map = command()?;
            match Ring::map(cmd_fd, &map, CQE_STRIDE) {
                Ok(new) => {
                    *ring = new;
                    Ok(())
                }
                Err(error) => {
                    let entries = ring.entries();
                    ring.store_producer(self.cursor.own().wrapping_add(entries).wrapping_add(1));
                    Err(error)
                }
            }
        })
    }
}

/// `cmd_fd` of a context.
///
/// # Safety
///
/// `context` must be open.
pub unsafe fn cmd_fd(context: *mut IbvContext) -> c_int {
    // SAFETY: The caller's promise; it does not change.
    unsafe { (*context).cmd_fd }
}

/// Says why the module has refused a CQ of so many entries; the error.
///
/// # Safety
///
/// `context` must be open.
#[cold]
pub unsafe fn refused(error: c_int, context: *mut IbvContext, cqe: u64) -> c_int {
    if !log::is_wanted() {
        return error;
    }
    // SAFETY: The caller's promise.
    let limits = unsafe { DeviceLimits::query(context) };
    let bytes = cqe.max(1).saturating_mul(CQE_STRIDE.into());
    by_kernel(error, "CQ", &[("cqe", cqe, limits.cqe)], bytes)
}

/// Makes a CQ; libibverbs sets its `cqe` to the number of entries that the kernel says.
pub unsafe extern "C" fn create(
    context: *mut IbvContext,
    cqe: c_int,
    channel: Opaque,
    comp_vector: c_int,
) -> *mut IbvCq {
    let cq = match Cq::new() {
        Ok(cq) => cq,
        Err(error) => return fail(error),
    };
    let mut resp = CreateCqResp {
        core: [0; 2],
        driver: udata::CreateCqResp::default(),
    };
    // SAFETY: Contract of the verb. There is no request of ours; the response has the size given.
    let error = unsafe {
        (library().ibv_cmd_create_cq)(
            context,
            cqe,
            channel,
            comp_vector,
            cq.as_ptr().cast(),
            core::ptr::null_mut(),
            0,
            &mut resp,
            size_of_val(&resp),
        )
    };
    if error != 0 {
        // SAFETY: Contract of the verb.
        return fail(unsafe { refused(error, context, cqe as u64) });
    }
    // SAFETY: Contract of the verb.
    let fd = unsafe { cmd_fd(context) };
    Cq::finish(cq, fd, &resp.driver.cq, false).map_or_else(fail, |cq| cq.cast())
}

/// Destroys a CQ; libibverbs waits in there until its events are acknowledged.
pub unsafe extern "C" fn destroy(cq: *mut IbvCq) -> c_int {
    // SAFETY: Contract of the verb.
    let error = unsafe { (library().ibv_cmd_destroy_cq)(cq) };
    if error == 0 {
        // SAFETY: It is from `Cq::finish`, and gone for the application.
        drop(unsafe { Object::reclaim(cq.cast::<Cq>()) });
    }
    error
}

/// Takes up to `num_entries` completions; returns how many, or -EIO if the ring was scribbled over.
pub unsafe extern "C" fn poll(cq: *mut IbvCq, num_entries: c_int, wc: *mut IbvWc) -> c_int {
    // SAFETY: Contract of the verb.
    let queue = unsafe { Cq::queue(cq.cast()) };
    let mut taken = 0;
    queue.lock.acquire();
    while taken < num_entries {
        // SAFETY: The lock is held.
        let cqe = match unsafe { queue.next() } {
            Ok(Some(cqe)) => cqe,
            Err(Scribbled) if taken == 0 => {
                taken = -libc::EIO;
                break;
            }
            Ok(None) | Err(Scribbled) => break,
        };
        // SAFETY: The application gives room for `num_entries`, and `taken` is not negative.
        let place = unsafe { wc.add(taken as usize) };
        // SAFETY: As above.
        unsafe { place.write(decode(&cqe)) };
        probe::polled(cq, place);
        taken += 1;
    }
    if taken > 0 {
        // SAFETY: The lock is held.
        unsafe { queue.ring() }.store_consumer(queue.cursor.own());
    }
    queue.lock.release();
    taken
}

/// Asks for an event at the next (solicited) completion, without a system call.
pub unsafe extern "C" fn req_notify(cq: *mut IbvCq, solicited_only: c_int) -> c_int {
    // SAFETY: Contract of the verb.
    let queue = unsafe { Cq::queue(cq.cast()) };
    let level = if solicited_only != 0 {
        ARM_SOLICITED
    } else {
        ARM_NEXT
    };
    // SAFETY: The lock is held.
    queue.arming.with(|| unsafe { queue.ring() }.arm(level));
    probe::arm(cq, solicited_only);
    0
}

/// Gives a CQ another number of entries, at least `cqe`: EINVAL if the completions in it would have
/// no room. libibverbs notes the number.
pub unsafe extern "C" fn resize(cq: *mut IbvCq, cqe: c_int) -> c_int {
    // SAFETY: Contract of the verb.
    let (queue, fd) = unsafe { (Cq::queue(cq.cast()), cmd_fd((*cq).context)) };
    let command = || {
        let mut cmd: ResizeCq = [0; 3];
        let mut resp = ResizeCqResp {
            core: [0; 2],
            driver: udata::CreateCqResp::default(),
        };
        // SAFETY: Contract of the verb; command and response have the sizes given.
        let error = unsafe {
            (library().ibv_cmd_resize_cq)(
                cq,
                cqe,
                &mut cmd,
                size_of_val(&cmd),
                &mut resp,
                size_of_val(&resp),
            )
        };
        if error != 0 {
            // SAFETY: Contract of the verb.
            return Err(unsafe { refused(error, (*cq).context, cqe as u64) });
        }
        Ok(resp.driver.cq)
    };
    // SAFETY: The lock is held.
    let resized = queue.exclusively(|| unsafe { queue.resize(fd, command) });
    resized.err().unwrap_or(0)
}

/// Moderates the events of a CQ.
pub unsafe extern "C" fn modify(cq: *mut IbvCq, attr: Opaque) -> c_int {
    let mut cmd: ModifyCq = [0; 5];
    // SAFETY: Contract of the verb; the command has the size given.
    unsafe { (library().ibv_cmd_modify_cq)(cq, attr, &mut cmd, size_of_val(&cmd)) }
}
