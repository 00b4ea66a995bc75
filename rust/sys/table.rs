// SPDX-License-Identifier: GPL-2.0

//! Tables from a small number to an object, read under RCU without a reference count.
//!
//! The receive path finds QPs and memory regions here. An object is published last, when it is
//! complete, and unpublished first: [`Table::remove`] waits until no reader can still hold it.

use super::bindings;
use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::sync::Arc;
use kernel::sync::ArcBorrow;
use kernel::types::Opaque;

/// Waits until every RCU read section that is running now has ended. May sleep.
pub fn wait_for_readers() {
    // SAFETY: The callers of this crate are in process context and hold no lock.
    unsafe { bindings::ferroce_synchronize_rcu() }
}

/// A table of `Arc<T>` by a number that the table chooses.
///
/// # Invariants
///
/// `xa` is an initialised xarray whose entries come from `Arc::<T>::into_raw`, one reference each.
#[pin_data(PinnedDrop)]
pub struct Table<T: Send + Sync + 'static> {
    #[pin]
    xa: Opaque<bindings::xarray>,
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
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes; the shim initialises it.
            xa <- unsafe {
                pin_init::pin_init_from_closure(|slot: *mut Opaque<bindings::xarray>| {
                    bindings::ferroce_xa_init(Opaque::cast_into(slot));
                    Ok::<(), core::convert::Infallible>(())
                })
            },
            next: AtomicU32::new(1),
            _entries: PhantomData,
        })
    }

    /// Takes a free number in `1..=max`. May sleep.
    pub fn reserve(&self, max: u32) -> Result<Reserved<'_, T>> {
        let mut index = 0;
        let mut next = self.next.load(Ordering::Relaxed);
        // SAFETY: `xa` is initialised; `index` and `next` outlive the call.
        to_result(unsafe {
            bindings::ferroce_xa_reserve(self.xa.get(), &mut index, max, &mut next)
        })?;
        // Two who race may go on from the same place, which is only a hint.
        self.next.store(next, Ordering::Relaxed);
        Ok(Reserved { table: self, index })
    }

    /// The object with this number, for as long as `_rcu` lives.
    pub fn get<'g>(&'g self, index: u32, _rcu: &'g rcu::Guard) -> Option<ArcBorrow<'g, T>> {
        // SAFETY: `xa` is initialised.
        let ptr = unsafe { bindings::xa_load(self.xa.get(), index as usize) };
        if ptr.is_null() {
            return None;
        }
        // SAFETY: The entry is from `Arc::into_raw`, and `remove` keeps its reference until the
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

    /// The first object that `wanted` accepts. It looks at one after the other: not for a fast path.
    pub fn find<'g>(
        &'g self,
        _rcu: &'g rcu::Guard,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Option<&'g T> {
        let mut index = 0;
        // SAFETY: `xa` is initialised; `index` outlives the call.
        let mut entry = unsafe {
            bindings::xa_find(self.xa.get(), &mut index, usize::MAX, bindings::XA_PRESENT)
        };
        loop {
            // SAFETY: As in `get`; the entry is null or valid. Reserved numbers are not present.
            let object = unsafe { entry.cast::<T>().as_ref() }?;
            if wanted(object) {
                return Some(object);
            }
            // SAFETY: As above.
            entry = unsafe {
                bindings::xa_find_after(self.xa.get(), &mut index, usize::MAX, bindings::XA_PRESENT)
            };
        }
    }

    /// Unpublishes a number, and waits until no reader holds its object. May sleep.
    pub fn remove(&self, index: u32) -> Option<Arc<T>> {
        // SAFETY: `xa` is initialised.
        let ptr = unsafe { bindings::ferroce_xa_erase(self.xa.get(), index as usize) };
        if ptr.is_null() {
            return None;
        }
        wait_for_readers();
        // SAFETY: The entry owned one reference, which is ours now.
        Some(unsafe { Arc::from_raw(ptr.cast::<T>().cast_const()) })
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
        // SAFETY: `xa` is initialised; the entry is reserved and holds no object.
        unsafe { bindings::ferroce_xa_erase(self.table.xa.get(), self.index as usize) };
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Table<T> {
    fn drop(self: Pin<&mut Self>) {
        // Whoever publishes an object removes it; a table with entries would leak them, which is
        // safe.
        // SAFETY: `xa` is initialised and nobody else uses it any more.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}
