// SPDX-License-Identifier: GPL-2.0

//! Tables from a small number to an object, read under RCU without a reference count.
//!
//! The receive path finds QPs and memory regions here. An object is published last, when it is
//! complete, and unpublished first: after [`Table::remove`] it is not found any more, and the table
//! lets go of it when no reader can still hold it.

use super::bindings;
use super::reclaim::Node;
use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicPtr,
    AtomicU32,
    Ordering, //
};
use kernel::alloc::{
    Allocator,
    Flags,
    Vec, //
};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::sync::Arc;
use kernel::sync::ArcBorrow;
use kernel::types::Opaque;

/// Where an object is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// It may sleep.
    Sleeps,
    /// It may not, and interrupts may be disabled.
    Atomic,
}

impl Context {
    /// How to allocate there.
    pub fn flags(self) -> Flags {
        match self {
            Context::Sleeps => GFP_KERNEL_ACCOUNT,
            Context::Atomic => GFP_ATOMIC,
        }
    }
}

/// A table of `Arc<T>` by a number that the table chooses.
///
/// # Invariants
///
/// `xa` is an initialised xarray whose entries come from `Arc::<T>::into_raw`, one reference each.
/// `nodes` is one whose entries come from `KBox::<Node>::into_raw`. Who erases an entry owns it.
#[pin_data(PinnedDrop)]
pub struct Table<T: Send + Sync + 'static> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    /// What frees the entry of the same number. Not in one place with it, for readers only need
    /// the entry.
    #[pin]
    nodes: Opaque<bindings::xarray>,
    /// Where to look for a free number first: one that was given back is not given out again soon,
    /// so that what still names the old object finds nothing.
    next: AtomicU32,
    _entries: PhantomData<Arc<T>>,
}

// SAFETY: The xarray has its own lock, and `T` may be shared with and dropped on any thread.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// A number that is taken but leads nowhere yet; given back when dropped unused.
pub struct Reserved<'a, T: Send + Sync + 'static> {
    table: &'a Table<T>,
    index: u32,
}

impl<T: Send + Sync> Table<T> {
    /// An empty table.
    pub fn new() -> impl PinInit<Self> {
        fn empty() -> impl PinInit<Opaque<bindings::xarray>> {
            // SAFETY: `slot` is valid for writes; the shim initialises it.
            unsafe {
                pin_init::pin_init_from_closure(|slot: *mut Opaque<bindings::xarray>| {
                    bindings::ferroce_xa_init(Opaque::cast_into(slot));
                    Ok::<(), core::convert::Infallible>(())
                })
            }
        }
        pin_init!(Self {
            xa <- empty(),
            nodes <- empty(),
            next: AtomicU32::new(1),
            _entries: PhantomData,
        })
    }

    /// Takes a free number in `1..=max`. May sleep.
    pub fn reserve(&self, max: u32) -> Result<Reserved<'_, T>> {
        self.reserve_in(Context::Sleeps, max)
    }

    /// As [`Self::reserve`], in this context.
    pub fn reserve_in(&self, context: Context, max: u32) -> Result<Reserved<'_, T>> {
        let may_sleep = context == Context::Sleeps;
        let node = Node::new(context.flags())?;
        let mut index = 0;
        let mut next = self.next.load(Ordering::Relaxed);
        // SAFETY: `xa` is initialised; `index` and `next` outlive the call.
        to_result(unsafe {
            bindings::ferroce_xa_reserve(self.xa.get(), &mut index, max, &mut next, may_sleep)
        })?;
        // Two who race may go on from the same place, which is only a hint.
        self.next.store(next, Ordering::Relaxed);
        let reserved = Reserved { table: self, index };
        let node = KBox::into_raw(node);
        // SAFETY: `nodes` is initialised, and its entry of a number that was just taken is empty.
        let ret = unsafe {
            bindings::ferroce_xa_store(
                self.nodes.get(),
                index as usize,
                node.cast::<c_void>(),
                may_sleep,
            )
        };
        if ret != 0 {
            // SAFETY: The node was not stored, so it is still ours.
            drop(unsafe { KBox::from_raw(node) });
            return Err(Error::from_errno(ret));
        }
        Ok(reserved)
    }

    /// Takes the node of a number. It must be taken before the number is given back.
    fn take_node(&self, index: u32) -> Option<KBox<Node>> {
        // SAFETY: `nodes` is initialised.
        let node = unsafe { bindings::ferroce_xa_erase(self.nodes.get(), index as usize) };
        // SAFETY: By the type invariant an entry that was erased is ours.
        (!node.is_null()).then(|| unsafe { KBox::from_raw(node.cast::<Node>()) })
    }

    /// The object with this number, for as long as `_rcu` lives.
    pub fn get<'g>(&'g self, index: u32, _rcu: &'g rcu::Guard) -> Option<ArcBorrow<'g, T>> {
        // SAFETY: `xa` is initialised.
        let ptr = unsafe { bindings::xa_load(self.xa.get(), index as usize) };
        if ptr.is_null() {
            return None;
        }
        // SAFETY: The entry is from `Arc::into_raw`, and its reference is kept until the
        // read section that `_rcu` stands for has ended.
        Some(unsafe { ArcBorrow::from_raw(ptr.cast::<T>().cast_const()) })
    }

    /// As [`Self::get`], for who only reads it.
    pub fn get_ref<'g>(&'g self, index: u32, _rcu: &'g rcu::Guard) -> Option<&'g T> {
        // SAFETY: As in `get`; the entry is null or valid.
        unsafe {
            bindings::xa_load(self.xa.get(), index as usize)
                .cast::<T>()
                .as_ref()
        }
    }

    /// Calls `visit` with each object, in the order of their numbers.
    pub fn each<'g>(&'g self, rcu: &'g rcu::Guard, mut visit: impl FnMut(ArcBorrow<'g, T>)) {
        let mut index = 0;
        // SAFETY: `xa` is initialised.
        while !unsafe { bindings::ferroce_xa_from(self.xa.get(), &mut index) }.is_null() {
            if let Some(object) = self.get(index as u32, rcu) {
                visit(object);
            }
            index = index.wrapping_add(1);
        }
    }

    /// Lets go of what was an entry, when no reader can still hold it, in a context that may sleep.
    ///
    /// # Safety
    ///
    /// `object` must be an entry that the caller has erased or replaced.
    unsafe fn release(node: KBox<Node>, object: *mut c_void) {
        /// # Safety
        ///
        /// `object` must be an entry of a table of `T`, and nobody else's.
        unsafe fn free<T>(object: *mut c_void) {
            // SAFETY: By the requirement.
            drop(unsafe { Arc::from_raw(object.cast::<T>().cast_const()) });
        }
        // SAFETY: By the type invariant and the requirement the entry is the caller's, and `T` may
        // be dropped on any thread.
        unsafe { node.call(object, free::<T>) };
    }

    /// Makes a published number lead to `object` instead of what it leads to, which the table lets
    /// go of as by [`Self::remove`]. The caller keeps others from removing it meanwhile.
    fn replace(&self, index: u32, node: KBox<Node>, object: Arc<T>) {
        let entry = Arc::into_raw(object).cast_mut().cast::<c_void>();
        // SAFETY: `xa` is initialised. There is an entry, so that storing needs no memory.
        let old = unsafe { bindings::ferroce_xa_replace(self.xa.get(), index as usize, entry) };
        if !old.is_null() {
            // SAFETY: Just replaced.
            unsafe { Self::release(node, old) };
        }
    }

    /// Unpublishes a number: nobody finds its object any more. The table lets go of the object
    /// later, when no reader can still hold it, in a context that may sleep.
    pub fn remove(&self, index: u32) {
        let node = self.take_node(index);
        // SAFETY: `xa` is initialised.
        let object = unsafe { bindings::ferroce_xa_erase(self.xa.get(), index as usize) };
        // Both are there, or the number was not published.
        if let (Some(node), false) = (node, object.is_null()) {
            // SAFETY: Just erased.
            unsafe { Self::release(node, object) };
        }
    }
}

impl<T: Send + Sync> Reserved<'_, T> {
    /// The number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Makes the number lead to `object`; from here on readers may use it.
    pub fn publish(self, object: Arc<T>) -> u32 {
        let ptr = Arc::into_raw(object);
        let index = self.index;
        // SAFETY: The entry is reserved, so that storing needs no memory and cannot fail.
        unsafe {
            bindings::ferroce_xa_publish(
                self.table.xa.get(),
                index as usize,
                ptr.cast_mut().cast::<c_void>(),
            )
        };
        core::mem::forget(self);
        index
    }
}

impl<T: Send + Sync> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        drop(self.table.take_node(self.index));
        // SAFETY: `xa` is initialised; the entry is reserved and holds no object.
        unsafe { bindings::ferroce_xa_erase(self.table.xa.get(), self.index as usize) };
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Table<T> {
    fn drop(self: Pin<&mut Self>) {
        // Whoever publishes an object removes it; a table with entries would leak them, which is
        // safe.
        // SAFETY: Both are initialised and nobody else uses them any more.
        unsafe {
            bindings::xa_destroy(self.xa.get());
            bindings::xa_destroy(self.nodes.get());
        }
    }
}

/// So many values, in memory of the kind that the caller's vector has. May sleep.
pub fn filled<T, A: Allocator>(count: usize, value: impl Fn() -> T) -> Result<Vec<T, A>> {
    let mut values = Vec::with_capacity(count, GFP_KERNEL)?;
    for _ in 0..count {
        values.push(value(), GFP_KERNEL)?;
    }
    Ok(values)
}

/// An object with a name of its own, which does not change while it is in a [`NamedTable`].
pub trait Named {
    /// The name.
    fn name(&self) -> u32;
}

/// A table whose objects are asked for by name.
///
/// The number of an object can be computed from its name, which costs something, as looking up a
/// number does. So the objects are noted in front of the table too, each in the one place that its
/// name says, where the one published last stays. Who is not noted is found by the number.
///
/// # Invariants
///
/// An entry of `front` is null or leads to an object that is published in `table`: it is noted
/// behind its publication and taken away before it is removed.
#[pin_data]
pub struct NamedTable<T: Named + Send + Sync + 'static> {
    #[pin]
    table: Table<T>,
    front: KVVec<AtomicPtr<T>>,
}

impl<T: Named + Send + Sync> NamedTable<T> {
    /// Places in front of a table. A thousand objects cover a fifth of it.
    const FRONT: usize = 4096;

    /// An empty table.
    pub fn new() -> impl PinInit<Self, Error> {
        // INVARIANT: All are null.
        try_pin_init!(Self {
            table <- Table::new(),
            front: filled(Self::FRONT, || AtomicPtr::new(core::ptr::null_mut()))?,
        })
    }

    /// Takes a free number in `1..=max`. May sleep.
    pub fn reserve(&self, max: u32) -> Result<Reserved<'_, T>> {
        self.table.reserve(max)
    }

    /// Calls `visit` with each object, in the order of their numbers.
    pub fn each<'g>(&'g self, rcu: &'g rcu::Guard, visit: impl FnMut(ArcBorrow<'g, T>)) {
        self.table.each(rcu, visit);
    }

    fn place(&self, name: u32) -> Option<&AtomicPtr<T>> {
        self.front.get(name as usize % Self::FRONT)
    }

    /// Makes a number of this table lead to `object`; from here on readers may use it.
    pub fn publish(&self, number: Reserved<'_, T>, object: Arc<T>) {
        let noted = Arc::as_ptr(&object).cast_mut();
        let name = object.name();
        number.publish(object);
        if let Some(place) = self.place(name) {
            // INVARIANT: Just published. The caller removes it later, if ever.
            place.store(noted, Ordering::Release);
        }
    }

    /// Makes the name and number of a published object lead to another one, which has the same
    /// name. Its making cannot fail any more: what may fail has been done when `make` is called.
    /// The caller keeps others from removing or replacing the object meanwhile.
    pub fn replace(&self, name: u32, number: u32, make: impl FnOnce() -> Arc<T>) -> Result<Arc<T>> {
        let node = Node::new(GFP_KERNEL_ACCOUNT)?;
        let object = make();
        let noted = Arc::as_ptr(&object).cast_mut();
        let rcu = rcu::read_lock();
        let old = self.noted(name, &rcu);
        // The old one may be noted until here. It is not let go of before `rcu` is.
        self.table.replace(number, node, object.clone());
        if let (Some(place), Some(old)) = (self.place(name), old) {
            // INVARIANT: Just published. Unless another one was noted meanwhile.
            let _ = place.compare_exchange(old, noted, Ordering::Release, Ordering::Relaxed);
        }
        drop(rcu);
        Ok(object)
    }

    /// The object that is noted in the place of this name, and has it.
    #[inline]
    fn noted<'g>(&'g self, name: u32, _rcu: &'g rcu::Guard) -> Option<*mut T> {
        let noted = self.place(name)?.load(Ordering::Acquire);
        // SAFETY: By the type invariant the object was published when it was read here, so it is
        // valid until the read section that `_rcu` stands for has ended.
        let object = unsafe { noted.as_ref() }?;
        (object.name() == name).then_some(noted)
    }

    /// The object with this name, whose number is that of `number`, for as long as `rcu` lives.
    #[inline]
    pub fn get<'g>(
        &'g self,
        name: u32,
        rcu: &'g rcu::Guard,
        number: impl FnOnce() -> u32,
    ) -> Option<ArcBorrow<'g, T>> {
        match self.noted(name, rcu) {
            // SAFETY: As in `noted`; what is published is from `Arc::into_raw`, and its reference
            // is kept as long.
            Some(noted) => Some(unsafe { ArcBorrow::from_raw(noted.cast_const()) }),
            None => self.table.get(number(), rcu),
        }
    }

    /// As [`Self::get`], for who only reads it.
    #[inline]
    pub fn get_ref<'g>(
        &'g self,
        name: u32,
        rcu: &'g rcu::Guard,
        number: impl FnOnce() -> u32,
    ) -> Option<&'g T> {
        match self.noted(name, rcu) {
            // SAFETY: As in `noted`.
            Some(noted) => unsafe { noted.as_ref() },
            None => self.table.get_ref(number(), rcu),
        }
    }

    /// Unpublishes the object with this name and number: see [`Table::remove`].
    pub fn remove(&self, name: u32, number: u32) {
        let rcu = rcu::read_lock();
        if let (Some(place), Some(noted)) = (self.place(name), self.noted(name, &rcu)) {
            // Unless another one was noted meanwhile.
            let _ = place.compare_exchange(
                noted,
                core::ptr::null_mut(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        drop(rcu);
        self.table.remove(number);
    }
}
