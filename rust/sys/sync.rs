// SPDX-License-Identifier: GPL-2.0

//! Locks of the data path, and values whose use can be ended.
//!
//! The receive softirq, the timer softirq and system calls share data under [`SpinLockBh`]s, held
//! with bottom halves disabled. Disabling bottom halves nests by a counter, so guards may be
//! dropped in any order. ULPs, which may call with interrupts disabled, have a lock of their own,
//! [`IrqLock`].
//!
//! A [`Revocable`] is taken away, a [`Changeable`] is changed. Users take references in one atomic
//! word, a gate, so the owner waits for current users only: no grace period, and nothing to free
//! later. Revoking sleeps meanwhile. Changing spins: the value is read often and briefly, and
//! changed rarely.
//!
//! The kernel's `rwlock_t` does not serve for the latter: it lets readers with bottom halves
//! disabled pass a waiting writer, which then spins until by chance no CPU reads. Here a change
//! waits for current readers only, not for later ones ([`Gate::change`]).

use crate::core::gate::{
    FairLock,
    Gate,
    GateWord, //
};
use crate::sys::bindings;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::prelude::*;
use kernel::sync::lock::{
    Backend,
    Lock, //
};
use kernel::types::{
    NotThreadSafe,
    Opaque, //
};

/// Backend of [`SpinLockBh`].
pub struct SpinLockBhBackend;

/// A spinlock whose holder runs with bottom halves disabled.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// Creates the initialiser of a [`SpinLockBh`] with a lockdep class of its own.
macro_rules! new_spinlock_bh {
    ($inner:expr, $name:literal) => {
        $crate::sys::sync::SpinLockBh::new(
            $inner,
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_spinlock_bh;

// SAFETY: `spin_lock_bh` ensures mutual exclusion; `relock` uses the same method.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the safety requirements `ptr` is valid for writes, `name` and `key` for ever.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: By the safety requirements the lock is initialised.
        unsafe { bindings::ferroce_spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: By the safety requirements the caller owns the lock.
        unsafe { bindings::ferroce_spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: By the safety requirements the lock is initialised.
        (unsafe { bindings::ferroce_spin_trylock_bh(ptr) } != 0).then_some(())
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements the lock is initialised.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

/// A lock for any context, also with interrupts disabled. Interrupts are disabled while it is held
/// and restored afterwards; so it is held only for the time of a closure.
#[pin_data]
pub struct IrqLock {
    #[pin]
    raw: Opaque<bindings::spinlock_t>,
}

// SAFETY: It is a lock.
unsafe impl Send for IrqLock {}
// SAFETY: As above.
unsafe impl Sync for IrqLock {}

impl IrqLock {
    /// An unlocked lock. All share one lockdep class.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes; the shim initialises it.
            raw <- unsafe {
                pin_init::pin_init_from_closure(|slot: *mut Opaque<bindings::spinlock_t>| {
                    bindings::ferroce_spin_lock_init(Opaque::cast_into(slot));
                    Ok::<(), core::convert::Infallible>(())
                })
            },
        })
    }

    /// Runs `what` with the lock held. It must not take the lock again.
    pub fn with<R>(&self, what: impl FnOnce() -> R) -> R {
        // SAFETY: It is initialised.
        let flags = unsafe { bindings::ferroce_spin_lock_irqsave(self.raw.get()) };
        let result = what();
        // SAFETY: Locked above, and interrupts were then as `flags` says.
        unsafe { bindings::ferroce_spin_unlock_irqrestore(self.raw.get(), flags) };
        result
    }
}

/// A value that can be revoked.
///
/// # Invariants
///
/// `value` is initialised until the gate is taken. Until then it is only read, and only by holders
/// of the gate; afterwards it belongs to the caller that took it. A caller that claims the gate has
/// exclusive access until it unclaims it, with the value initialised.
pub struct Revocable<T> {
    gate: Gate<Counted<Asleep>>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: The value may be moved to another thread by `revoke`, so `T` must be `Send`.
unsafe impl<T: Send> Send for Revocable<T> {}
// SAFETY: References to the value are given to many threads at once, and one of them may be given
// the value itself.
unsafe impl<T: Send + Sync> Sync for Revocable<T> {}

/// Access to the value of a [`Revocable`]; revocation waits until it is dropped.
///
/// # Invariants
///
/// The holder has a reference of the gate.
pub struct RevocableGuard<'a, T>(&'a Revocable<T>);

impl<T> Revocable<T> {
    /// A usable value.
    pub const fn new(value: T) -> Self {
        Self {
            gate: Gate::new(Counted::new()),
            value: UnsafeCell::new(MaybeUninit::new(value)),
        }
    }

    /// The value, unless it was revoked or denied. Two atomic operations including the drop of the
    /// result; any context.
    #[inline]
    pub fn access(&self) -> Option<RevocableGuard<'_, T>> {
        // INVARIANT: The reference was just taken.
        self.gate.tryget().then(|| RevocableGuard(self))
    }

    /// A value that is denied until [`Self::allow`].
    pub fn denied(value: T) -> Self {
        let denied = Self::new(value);
        denied.deny();
        denied
    }

    /// Changes a denied value, unless it is still in use or being changed. Any context.
    pub fn change<R>(&self, what: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.claimed(|value| (what(value), false))
    }

    /// Changes a denied value like [`Self::change`], and allows its use if `what` returns true.
    pub fn allow(&self, what: impl FnOnce(&mut T) -> bool) -> bool {
        let allowed = |value: &mut T| {
            let allowed = what(value);
            (allowed, allowed)
        };
        self.claimed(allowed).unwrap_or(false)
    }

    fn claimed<R>(&self, what: impl FnOnce(&mut T) -> (R, bool)) -> Option<R> {
        if !self.gate.try_claim() {
            return None;
        }
        // SAFETY: By the type invariant the value is initialised. A claim is exclusive
        // until unclaimed: no reference was left, none is granted, and no other caller takes it.
        let (result, open) = what(unsafe { (*self.value.get()).assume_init_mut() });
        self.gate.unclaim(open);
        Some(result)
    }

    /// Denies new accesses; accesses in progress continue. Any context.
    pub fn deny(&self) {
        self.gate.kill();
    }

    /// Revokes the value: refuses new accesses, waits for those in progress, and returns the value
    /// to the first caller. May sleep. Must not be called with a [`RevocableGuard`] of the same
    /// value, for which it would wait for ever.
    pub fn revoke(&self) -> Option<T> {
        if !self.gate.take() {
            return None;
        }
        // SAFETY: By the type invariant the value is initialised. The taker of the gate has
        // exclusive access to it: all references were put, and their accesses happen before this.
        Some(unsafe { (*self.value.get()).assume_init_read() })
    }
}

impl<T> Drop for Revocable<T> {
    fn drop(&mut self) {
        if !self.gate.is_taken() {
            // SAFETY: By the type invariant the value is initialised, and `self` is exclusive.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T> Deref for RevocableGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: By the invariants the value is initialised and neither written nor taken
        // while `self` lives.
        unsafe { (*self.0.value.get()).assume_init_ref() }
    }
}

impl<T> Drop for RevocableGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.gate.put();
    }
}

// The kernel crate's atomics are calls of C functions, and this runs for every copy.

/// How to wait for a word.
pub(super) trait WaitMode {
    /// Waits until no bit of `mask` is set in `word`, or one of `unless` is.
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32);
    /// Wakes the waiters of `word`.
    fn wake(word: &AtomicU32);
}

/// Sleeping, as long as it takes.
pub(super) enum Asleep {}

impl WaitMode for Asleep {
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32) {
        // SAFETY: The word is valid for the whole call.
        unsafe { bindings::ferroce_wait_until_clear(word.as_ptr(), mask, unless) };
    }

    #[cold]
    fn wake(word: &AtomicU32) {
        // SAFETY: The word is valid for the whole call.
        unsafe { bindings::ferroce_wake(word.as_ptr()) };
    }
}

/// Spinning, for references held with bottom halves disabled, which never sleep.
pub(super) enum Awake {}

impl WaitMode for Awake {
    #[cold]
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32) {
        // SAFETY: The word is valid for the whole call.
        unsafe { bindings::ferroce_spin_until_clear(word.as_ptr(), mask, unless) };
    }

    #[inline]
    fn wake(_: &AtomicU32) {}
}

/// A word that is waited for as `H` says.
pub(super) struct Counted<H>(AtomicU32, PhantomData<H>);

impl<H> Counted<H> {
    /// 0.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0), PhantomData)
    }
}

impl<H: WaitMode> GateWord for Counted<H> {
    #[inline]
    fn add_one(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Acquire)
    }

    #[inline]
    fn sub_one(&self) -> u32 {
        self.0.fetch_sub(1, Ordering::Release)
    }

    fn read(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn replace(&self, old: u32, new: u32) -> bool {
        self.0
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    fn wait_until_clear(&self, mask: u32, unless: u32) {
        H::until_clear(&self.0, mask, unless);
    }

    #[inline]
    fn wake(&self) {
        H::wake(&self.0);
    }
}

impl FairLock for SpinLockBh<()> {
    fn with_lock<R>(&self, what: impl FnOnce() -> R) -> R {
        let _alone = self.lock();
        what()
    }
}

/// A value that changes rarely. Readers and changes run with bottom halves disabled, and spin.
///
/// # Invariants
///
/// Only changes kill `gate`, serialised by `changes`. `value` is only read by holders of the gate,
/// and only written by a change.
#[pin_data]
pub struct Changeable<T> {
    gate: Gate<Counted<Awake>>,
    /// Taken after the locks of readers and changers, and before none.
    #[pin]
    changes: SpinLockBh<()>,
    value: UnsafeCell<T>,
}

// SAFETY: The value moves with the whole.
unsafe impl<T: Send> Send for Changeable<T> {}
// SAFETY: Many may read the value at the same time, and any thread may change it alone.
unsafe impl<T: Send + Sync> Sync for Changeable<T> {}

/// Bottom halves are disabled while it lives.
struct BhDisabled(NotThreadSafe);

impl BhDisabled {
    #[inline]
    fn new() -> Self {
        // SAFETY: No requirements; this nests by a counter.
        unsafe { bindings::ferroce_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for BhDisabled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: They were disabled on this CPU, by this thread.
        unsafe { bindings::ferroce_bh_enable() };
    }
}

/// Calls `queue`, which queues work of softirqs, and lets this work run before it returns, if it
/// may run here: not with interrupts or bottom halves disabled. What a task queues otherwise is
/// left to ksoftirqd, which takes two context switches, and which a busy CPU runs late.
///
/// To the caller it is as if an interrupt came. So it holds no lock that softirqs take: where it
/// holds one, it has disabled interrupts or bottom halves.
#[inline]
pub fn and_run_softirqs(queue: impl FnOnce()) {
    // SAFETY: No requirements.
    let _bh = unsafe { bindings::ferroce_bh_may_disable() }.then(|| BhDisabled(NotThreadSafe));
    queue();
}

/// A read access to a [`Changeable`]; a change spins until it is dropped. Its holder must not read
/// or change the same value again, nor wait for code that may.
///
/// # Invariants
///
/// The holder has a reference of the gate.
pub struct Reading<'a, T> {
    of: &'a Changeable<T>,
    /// Enabled after the gate is put: a change waits for the reader only briefly.
    _bh: BhDisabled,
}

impl<T> Changeable<T> {
    /// A value that may be read and changed.
    pub fn new(value: T) -> impl PinInit<Self> {
        // INVARIANT: The gate is live.
        pin_init!(Self {
            gate: Gate::new(Counted::new()),
            changes <- new_spinlock_bh!((), "ferroce_changes"),
            value: UnsafeCell::new(value),
        })
    }

    /// The value after the changes in progress. Fails only after guards were leaked.
    pub fn read(&self) -> Option<Reading<'_, T>> {
        let bh = BhDisabled::new();
        // INVARIANT: The reference was just taken.
        self.gate
            .tryget_queued(&self.changes)
            .then_some(Reading { of: self, _bh: bh })
    }

    /// Changes the value exclusively. Waits for changes in progress, then for readers.
    pub fn change<R>(&self, what: impl FnOnce(&mut T) -> R) -> R {
        self.gate.change(&self.changes, || {
            // SAFETY: By the type invariant nothing else reads or writes: no reference is left,
            // none is granted, and this is the only change.
            what(unsafe { &mut *self.value.get() })
        })
    }
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants it is not written while `self` lives.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        self.of.gate.put();
    }
}
