// SPDX-License-Identifier: GPL-2.0

//! Tables from a small number to an object, read under RCU without reference counting; and an
//! object in use that can be replaced.
//!
//! The receive path finds QPs and MRs here. An object is published last, when it is complete.
//! Publishing returns a [`Published`], the only way to remove or replace the object. Removal takes
//! the object out of every place where readers find it, and then gives it to RCU, in one function.

use crate::sys::bindings;
use crate::sys::reclaim::Node;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::{
    Deref,
    RangeInclusive, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use core::sync::atomic::{
    AtomicPtr,
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel::alloc::{
    Allocator,
    Flags,
    Vec, //
};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow,
    UniqueArc, //
};
use kernel::types::Opaque;

/// The context of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocContext {
    /// It may sleep.
    Sleeps,
    /// It may not sleep, and interrupts may be disabled.
    Atomic,
}

impl AllocContext {
    /// Allocation flags for the context.
    pub fn flags(self) -> Flags {
        match self {
            AllocContext::Sleeps => GFP_KERNEL_ACCOUNT,
            AllocContext::Atomic => GFP_ATOMIC,
        }
    }
}

/// An object with a constant name.
///
/// If the name changed, the object might not be found; nothing else depends on it.
pub trait Named {
    /// The name.
    fn name(&self) -> u32;
}

/// A table of `Arc<T>` by a number that the table chooses; with [`Table::named`] by name too, with
/// [`Table::reserve_hashed`] by a hash.
///
/// The number of an object can be computed from its name, at some cost, like the lookup by number.
/// So a table with names also has a front, a direct-mapped cache: each name has one slot, which
/// keeps the object published last. Other objects are found by number.
///
/// The numbers of objects with the same hash are next to each other: a chain of objects is a range
/// of numbers.
///
/// # Invariants
///
/// `xa` is an initialised xarray whose entries come from `Arc::<T>::into_raw`, one reference each,
/// which passes to the caller that removes the entry.
///
/// An entry of `front` is null or points to an object that is in `xa`: it is set after its
/// publication, and cleared before its entry is removed, both by its [`Published`].
///
/// No other table has or had the same `id`.
#[pin_data(PinnedDrop)]
pub struct Table<T: Send + Sync + 'static> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    front: KVVec<AtomicPtr<T>>,
    id: u64,
    /// Where to search for a free number first: a freed number is not reused soon, so stale
    /// references to the old object find nothing.
    next: AtomicU32,
    _entries: PhantomData<Arc<T>>,
}

// SAFETY: The xarray has its own lock, and `T` may be shared with and dropped on any thread.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// A reserved number that leads nowhere yet; released when dropped unused.
pub struct Reserved<'a, T: Send + Sync + 'static> {
    table: &'a Table<T>,
    number: u32,
    /// Node for the later release of the object; set until it is published.
    node: Option<KBox<Node>>,
}

/// An object in a table, and the right to remove it. Dropped without removal, the object stays in
/// the table for ever.
///
/// # Invariants
///
/// While there is a `node`, `object` is in the table with the id `table` under `number`, and in its
/// front, if at all, in the slot of `name`.
pub struct Published<T: Send + Sync + 'static> {
    object: Arc<T>,
    table: u64,
    number: u32,
    name: Option<u32>,
    /// Releases the reference of the table; `None` once removed.
    node: Option<KBox<Node>>,
}

/// A prepared replacement of an object in a table: everything that can fail is done.
pub struct Replacement<T> {
    memory: UniqueArc<MaybeUninit<T>>,
    node: KBox<Node>,
}

impl<T> Replacement<T> {
    /// May sleep.
    pub fn new() -> Result<Self> {
        Ok(Self {
            memory: UniqueArc::new_uninit(GFP_KERNEL_ACCOUNT)?,
            node: Node::new(GFP_KERNEL_ACCOUNT)?,
        })
    }
}

impl<T: Send + Sync> Table<T> {
    /// Slots in front of a table with names. A thousand objects cover a fifth of it.
    const FRONT: usize = 4096;

    /// Hashes that are told apart. Enough for the ports of a host with many containers.
    const HASHES: u32 = 1 << 10;

    /// Numbers for each of them.
    const NUMBERS: u32 = 1 << 20;

    /// An empty table.
    pub fn new() -> impl PinInit<Self, Error> {
        Self::with_front(0)
    }

    fn with_front(slots: usize) -> impl PinInit<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fn empty() -> impl PinInit<Opaque<bindings::xarray>> {
            // SAFETY: `slot` is valid for writes; the shim initialises it.
            unsafe {
                pin_init::pin_init_from_closure(|slot: *mut Opaque<bindings::xarray>| {
                    bindings::ferroce_xa_init(Opaque::cast_into(slot));
                    Ok::<(), core::convert::Infallible>(())
                })
            }
        }
        try_pin_init!(Self {
            xa <- empty(),
            // INVARIANT: All are null.
            front: filled(slots, || AtomicPtr::new(null_mut()))?,
            // INVARIANT: So many tables are never created that the id wraps.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            next: AtomicU32::new(1),
            _entries: PhantomData,
        })
    }

    /// Reserves a free number in `1..=max`. May sleep.
    pub fn reserve(&self, max: u32) -> Result<Reserved<'_, T>> {
        self.reserve_in(AllocContext::Sleeps, max)
    }

    /// Reserves a free number in `1..=max` for which `name` finds a name. May sleep.
    pub fn reserve_named<N>(
        &self,
        max: u32,
        name: &impl Fn(u32) -> Option<N>,
    ) -> Result<(Reserved<'_, T>, N)> {
        // Kept while another one is drawn: few numbers have no name.
        let mut nameless = KVec::new();
        loop {
            let reserved = self.reserve(max)?;
            match name(reserved.number) {
                Some(name) => return Ok((reserved, name)),
                None => nameless.push(reserved, GFP_KERNEL)?,
            }
        }
    }

    /// Like [`Self::reserve`], in this context.
    pub fn reserve_in(&self, context: AllocContext, max: u32) -> Result<Reserved<'_, T>> {
        let hint = self.next.load(Ordering::Relaxed);
        let mut next = hint;
        let reserved = self.reserve_from(&mut next, 1..=max, context)?;
        // Not if another caller has moved it: it must not go back to numbers that are just free.
        let _ = self
            .next
            .compare_exchange(hint, next, Ordering::Relaxed, Ordering::Relaxed);
        Ok(reserved)
    }

    /// Reserves a number for an object that [`Self::hashed`] finds by this hash. May sleep.
    pub fn reserve_hashed(&self, hash: u32) -> Result<Reserved<'_, T>> {
        let numbers = Self::numbers(hash);
        let mut next = *numbers.start();
        self.reserve_from(&mut next, numbers, AllocContext::Sleeps)
    }

    /// Reserves the first free number of this range, from `next` on and then from its start.
    fn reserve_from(
        &self,
        next: &mut u32,
        numbers: RangeInclusive<u32>,
        context: AllocContext,
    ) -> Result<Reserved<'_, T>> {
        let may_sleep = context == AllocContext::Sleeps;
        let node = Some(Node::new(context.flags())?);
        let (min, max) = numbers.into_inner();
        let limit = bindings::xa_limit { max, min };
        let mut number = 0;
        // SAFETY: `xa` is initialised; `number` and `next` outlive the call.
        to_result(unsafe {
            bindings::ferroce_xa_reserve(self.xa.get(), &mut number, limit, next, may_sleep)
        })?;
        Ok(Reserved {
            table: self,
            number,
            node,
        })
    }

    /// The object with this number, while `rcu` lives.
    pub fn get<'g>(&'g self, number: u32, rcu: &'g rcu::Guard) -> Option<ArcBorrow<'g, T>> {
        self.entry(number, rcu).map(Found::counted)
    }

    /// Like [`Self::get`], without a counted reference.
    pub fn get_ref<'g>(&'g self, number: u32, rcu: &'g rcu::Guard) -> Option<&'g T> {
        self.entry(number, rcu).map(|found| found.object())
    }

    /// All objects, in the order of their numbers, while `rcu` lives.
    pub fn all<'g>(&'g self, rcu: &'g rcu::Guard) -> impl Iterator<Item = ArcBorrow<'g, T>> {
        self.entries(0..=u32::MAX, rcu).map(Found::counted)
    }

    /// The objects with this hash, or with one that is the same here, while `rcu` lives.
    pub fn hashed<'g>(&'g self, hash: u32, rcu: &'g rcu::Guard) -> impl Iterator<Item = &'g T> {
        self.entries(Self::numbers(hash), rcu)
            .map(|found| found.object())
    }

    /// The numbers of the objects with this hash.
    fn numbers(hash: u32) -> RangeInclusive<u32> {
        let first = (hash % Self::HASHES).wrapping_mul(Self::NUMBERS);
        first.max(1)..=first | Self::NUMBERS.wrapping_sub(1)
    }

    /// The entry of this number.
    #[inline]
    fn entry<'g>(&'g self, number: u32, rcu: &'g rcu::Guard) -> Option<Found<'g, T>> {
        // SAFETY: `xa` is initialised.
        let entry = unsafe { bindings::xa_load(self.xa.get(), number as usize) };
        // SAFETY: It is an entry.
        unsafe { Found::new(entry.cast(), rcu) }
    }

    /// The entries of these numbers, in their order.
    fn entries<'g>(
        &'g self,
        numbers: RangeInclusive<u32>,
        rcu: &'g rcu::Guard,
    ) -> impl Iterator<Item = Found<'g, T>> + 'g {
        let (first, last) = numbers.into_inner();
        let (mut number, last) = (first as usize, last as usize);
        core::iter::from_fn(move || {
            // SAFETY: `xa` is initialised, and `number` outlives the call.
            let entry = unsafe { bindings::ferroce_xa_find(self.xa.get(), &mut number, last) };
            number = number.wrapping_add(1);
            // SAFETY: It is an entry.
            unsafe { Found::new(entry.cast(), rcu) }
        })
    }

    /// Unpublishes an object. The table drops it after a grace period, in a context that may sleep.
    /// Any context.
    ///
    /// Does nothing if it was removed, or is in another table.
    pub fn remove(&self, published: &mut Published<T>) {
        self.take_out(published, None);
    }

    /// Lets the number and the name of an object lead to `object` instead, which has the same name;
    /// the old one is removed as by [`Self::remove`]. Any context.
    ///
    /// Does nothing if it was removed, or is in another table.
    pub fn replace(&self, published: &mut Published<T>, with: Replacement<T>, object: T) {
        let object = Arc::from(with.memory.write(object));
        self.take_out(published, Some((object, with.node)));
    }

    /// The only way out of the table: takes an object out of every place where readers find it,
    /// then gives it to RCU. Its number is free again if it has no successor.
    fn take_out(&self, published: &mut Published<T>, successor: Option<(Arc<T>, KBox<Node>)>) {
        if published.table != self.id {
            return;
        }
        let Some(node) = published.node.take() else {
            return;
        };
        let slot = published.name.and_then(|name| self.front_slot(name));
        let old = Arc::as_ptr(&published.object).cast_mut();
        if let Some(slot) = slot {
            // Unless another object took the slot meanwhile.
            let _ = slot.compare_exchange(old, null_mut(), Ordering::Relaxed, Ordering::Relaxed);
        }
        let new = match &successor {
            Some((object, _)) => Arc::into_raw(object.clone()).cast_mut(),
            None => null_mut(),
        };
        let number = published.number as usize;
        // SAFETY: `xa` is initialised. There is an entry of this number, `old`: only the owner of
        // `published` changes it. So storing needs no memory.
        unsafe {
            if new.is_null() {
                bindings::ferroce_xa_free(self.xa.get(), number);
            } else {
                bindings::ferroce_xa_publish(self.xa.get(), number, new.cast());
            }
        };
        if let Some((object, node)) = successor {
            if let Some(slot) = slot {
                // INVARIANT: Just published.
                slot.store(new, Ordering::Release);
            }
            published.object = object;
            published.node = Some(node);
        }
        // SAFETY: By the type invariant the reference of the entry that was taken out is ours.
        node.release(unsafe { Arc::from_raw(old.cast_const()) });
    }

    /// The front slot of this name, if the objects have names.
    #[inline]
    fn front_slot(&self, name: u32) -> Option<&AtomicPtr<T>> {
        self.front.get(name as usize % Self::FRONT)
    }
}

impl<T: Named + Send + Sync> Table<T> {
    /// An empty table of objects that are looked up by name.
    pub fn named() -> impl PinInit<Self, Error> {
        Self::with_front(Self::FRONT)
    }

    /// The object with this name, whose number is that of `number`, while `rcu` lives.
    #[inline]
    pub fn find<'g>(
        &'g self,
        name: u32,
        rcu: &'g rcu::Guard,
        number: impl FnOnce() -> u32,
    ) -> Option<ArcBorrow<'g, T>> {
        self.entry_of(name, rcu, number).map(Found::counted)
    }

    /// Like [`Self::find`], without a counted reference.
    #[inline]
    pub fn find_ref<'g>(
        &'g self,
        name: u32,
        rcu: &'g rcu::Guard,
        number: impl FnOnce() -> u32,
    ) -> Option<&'g T> {
        let found = self.entry_of(name, rcu, number)?;
        Some(found.object())
    }

    /// The entry in the front slot of this name, if the name matches, or that of the number.
    #[inline]
    fn entry_of<'g>(
        &'g self,
        name: u32,
        rcu: &'g rcu::Guard,
        number: impl FnOnce() -> u32,
    ) -> Option<Found<'g, T>> {
        let noted = self.front_slot(name).and_then(|slot| {
            // SAFETY: By the type invariant it is null or an entry.
            unsafe { Found::new(slot.load(Ordering::Acquire), rcu) }
        });
        noted
            .filter(|noted| noted.object().name() == name)
            .or_else(|| self.entry(number(), rcu))
    }
}

/// An entry of a table that a reader has found.
///
/// # Invariants
///
/// The pointer is from `Arc::into_raw`, and its reference is kept while `'g` lasts.
struct Found<'g, T>(NonNull<T>, PhantomData<&'g T>);

impl<'g, T> Found<'g, T> {
    /// # Safety
    ///
    /// `entry` must be null, or read from a table since the read section that `_rcu`
    /// stands for began.
    #[inline]
    unsafe fn new(entry: *mut T, _rcu: &'g rcu::Guard) -> Option<Self> {
        // INVARIANT: A table gives the reference of an entry to RCU, after it has taken the entry
        // out of all places. So it is kept until the read section has ended.
        NonNull::new(entry).map(|entry| Self(entry, PhantomData))
    }

    /// The object, of which a counted reference may be taken.
    #[inline]
    fn counted(self) -> ArcBorrow<'g, T> {
        // SAFETY: By the type invariant.
        unsafe { ArcBorrow::from_raw(self.0.as_ptr()) }
    }

    /// The object.
    #[inline]
    fn object(&self) -> &'g T {
        // SAFETY: By the type invariant.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Send + Sync> Reserved<'_, T> {
    /// The number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Publishes `object` under the number; from here on readers may use it.
    pub fn publish(self, object: Arc<T>) -> Published<T> {
        self.publish_as(None, object)
    }

    /// Like [`Self::publish`], and under its name too.
    pub fn publish_named(self, object: Arc<T>) -> Published<T>
    where
        T: Named,
    {
        self.publish_as(Some(object.name()), object)
    }

    fn publish_as(mut self, name: Option<u32>, object: Arc<T>) -> Published<T> {
        let (table, number, node) = (self.table, self.number, self.node.take());
        core::mem::forget(self);
        let entry = Arc::into_raw(object.clone()).cast_mut();
        // SAFETY: The entry is reserved, so that storing needs no memory and cannot fail.
        unsafe {
            bindings::ferroce_xa_publish(table.xa.get(), number as usize, entry.cast::<c_void>())
        };
        if let Some(slot) = name.and_then(|name| table.front_slot(name)) {
            // INVARIANT: Just published.
            slot.store(entry, Ordering::Release);
        }
        Published {
            object,
            table: table.id,
            number,
            name,
            node,
        }
    }
}

impl<T: Send + Sync> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `xa` is initialised; the entry is reserved and holds no object.
        unsafe { bindings::ferroce_xa_free(self.table.xa.get(), self.number as usize) };
    }
}

impl<T: Send + Sync> Published<T> {
    /// The number in the table, which may differ from a number of the object's own.
    pub fn number(this: &Self) -> u32 {
        this.number
    }
}

impl<T: Send + Sync> Deref for Published<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.object
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Table<T> {
    fn drop(self: Pin<&mut Self>) {
        // Each publisher removes its object; a table with entries would leak them, which is
        // safe.
        // SAFETY: It is initialised and no longer used.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

/// This many values, in memory of the kind that the caller's vector has. May sleep.
pub fn filled<T, A: Allocator>(count: usize, value: impl Fn() -> T) -> Result<Vec<T, A>> {
    let mut values = Vec::with_capacity(count, GFP_KERNEL)?;
    for _ in 0..count {
        values.push(value(), GFP_KERNEL)?;
    }
    Ok(values)
}

/// A slot for an `Arc` that is read under RCU without reference counting.
///
/// # Invariants
///
/// The pointer is from `Arc::into_raw`, with one reference that the slot owns.
pub struct Replaceable<T: Send + Sync + 'static>(AtomicPtr<T>);

/// A prepared successor: everything that can fail is done.
pub struct Successor<T> {
    value: Arc<T>,
    node: KBox<Node>,
}

impl<T> Successor<T> {
    /// May sleep.
    pub fn new(value: Arc<T>) -> Result<Self> {
        let node = Node::new(GFP_KERNEL_ACCOUNT)?;
        Ok(Self { value, node })
    }
}

impl<T> Deref for Successor<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + Sync> Replaceable<T> {
    /// A slot with `value`.
    pub fn new(value: Arc<T>) -> Self {
        // INVARIANT: The reference is the slot's now.
        Self(AtomicPtr::new(Arc::into_raw(value).cast_mut()))
    }

    /// The current value, while `_rcu` lives.
    #[inline]
    pub fn get<'a>(&'a self, _rcu: &'a rcu::Guard) -> &'a T {
        // SAFETY: By the type invariant the value lives while the slot holds it, and what
        // `replace` takes away lives until the read section that `_rcu` stands for has ended.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Replaces the value by `successor`. Any context. The old value is freed after a grace period.
    pub fn replace(&self, successor: Successor<T>) {
        let Successor { value, node } = successor;
        // INVARIANT: The reference of the successor is the slot's now.
        let old = self
            .0
            .swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
        // SAFETY: By the type invariant; the reference was the slot's, and is ours now.
        let old = unsafe { Arc::from_raw(old.cast_const()) };
        // The slot was the only place where readers found it.
        node.release(old);
    }
}

impl<T: Send + Sync + 'static> Drop for Replaceable<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the slot is dropped after its last reader.
        drop(unsafe { Arc::from_raw(self.0.get_mut().cast_const()) });
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(ferroce_sys_table)]
mod tests {
    use super::*;

    struct Thing {
        name: u32,
        value: u32,
    }

    impl Named for Thing {
        fn name(&self) -> u32 {
            self.name
        }
    }

    type Things = Pin<KBox<Table<Thing>>>;

    fn things() -> Result<Things> {
        KBox::pin_init(Table::named(), GFP_KERNEL)
    }

    fn publish(things: &Table<Thing>, name: u32, value: u32) -> Result<Published<Thing>> {
        let reserved = things.reserve(1 << 20)?;
        Ok(reserved.publish_named(Arc::new(Thing { name, value }, GFP_KERNEL)?))
    }

    /// What the front holds for a name, and what the lookup by number finds otherwise.
    fn noted(things: &Table<Thing>, name: u32) -> Option<u32> {
        let rcu = rcu::read_lock();
        let found = things.find_ref(name, &rcu, || 0)?;
        Some(found.value)
    }

    fn numbered(things: &Table<Thing>, number: u32) -> Option<u32> {
        let rcu = rcu::read_lock();
        Some(things.get(number, &rcu)?.value)
    }

    #[test]
    fn what_is_published_is_found_until_it_is_removed() -> Result {
        let things = things()?;
        let mut one = publish(&things, 7, 1)?;
        let number = Published::number(&one);
        assert_eq!(noted(&things, 7), Some(1));
        assert_eq!(numbered(&things, number), Some(1));
        things.remove(&mut one);
        assert_eq!(noted(&things, 7), None);
        assert_eq!(numbered(&things, number), None);
        // Its number may have been reused.
        let mut two = things
            .reserve(number)?
            .publish_named(Arc::new(Thing { name: 7, value: 2 }, GFP_KERNEL)?);
        assert_eq!(Published::number(&two), number);
        things.remove(&mut one);
        assert_eq!(noted(&things, 7), Some(2));
        assert_eq!(numbered(&things, number), Some(2));
        things.remove(&mut two);
        Ok(())
    }

    #[test]
    fn numbers_without_a_name_are_passed_over_and_stay_free() -> Result {
        let things = things()?;
        let (reserved, name) = things.reserve_named(8, &|number| (number > 3).then_some(number))?;
        assert_eq!((reserved.number(), name), (4, 4));
        assert!(things.reserve_named(3, &|_| None::<u32>).is_err());
        assert_eq!(things.reserve(1)?.number(), 1);
        Ok(())
    }

    #[test]
    fn another_object_takes_the_place_of_one() -> Result {
        let things = things()?;
        let mut one = publish(&things, 7, 1)?;
        let old = Arc::clone(&one);
        things.replace(&mut one, Replacement::new()?, Thing { name: 7, value: 2 });
        assert_eq!(noted(&things, 7), Some(2));
        assert_eq!(numbered(&things, Published::number(&one)), Some(2));
        assert_eq!(one.value, 2);
        assert_eq!(old.value, 1);
        things.remove(&mut one);
        assert_eq!(noted(&things, 7), None);
        assert_eq!(numbered(&things, Published::number(&one)), None);
        Ok(())
    }

    #[test]
    fn the_last_of_two_in_one_slot_is_noted() -> Result {
        let things = things()?;
        let far = 7 + Table::<Thing>::FRONT as u32;
        let (mut near, mut other) = (publish(&things, 7, 1)?, publish(&things, far, 2)?);
        assert_eq!(noted(&things, 7), None);
        assert_eq!(numbered(&things, Published::number(&near)), Some(1));
        assert_eq!(noted(&things, far), Some(2));
        things.remove(&mut near);
        assert_eq!(noted(&things, far), Some(2));
        things.remove(&mut other);
        assert_eq!(noted(&things, far), None);
        Ok(())
    }

    #[test]
    fn those_of_a_hash_are_found_together() -> Result {
        let things = things()?;
        let thing = |value| Arc::new(Thing { name: 7, value }, GFP_KERNEL);
        let hash = 5;
        let same = hash + Table::<Thing>::HASHES;
        let mut one = things.reserve_hashed(hash)?.publish(thing(1)?);
        let mut other = things.reserve_hashed(hash + 1)?.publish(thing(2)?);
        let mut two = things.reserve_hashed(same)?.publish(thing(3)?);
        let reserved = things.reserve_hashed(hash)?;
        let values = |hash| {
            let rcu = rcu::read_lock();
            let values = things.hashed(hash, &rcu).map(|thing| thing.value);
            values.fold((0, 0), |(count, sum), value| (count + 1, sum + value))
        };
        assert_eq!(values(hash), (2, 4));
        assert_eq!(values(hash + 1), (1, 2));
        assert_eq!(values(hash + 2), (0, 0));
        things.remove(&mut one);
        assert_eq!(values(same), (1, 3));
        things.remove(&mut two);
        assert_eq!(values(hash), (0, 0));
        assert_eq!(things.all(&rcu::read_lock()).count(), 1);
        drop(reserved);
        things.remove(&mut other);
        Ok(())
    }

    #[test]
    fn an_object_of_another_table_stays_where_it_is() -> Result {
        let (here, there) = (things()?, things()?);
        let (mut one, mut two) = (publish(&here, 7, 1)?, publish(&there, 7, 2)?);
        assert_eq!(Published::number(&one), Published::number(&two));
        here.remove(&mut two);
        here.replace(&mut two, Replacement::new()?, Thing { name: 7, value: 3 });
        assert_eq!(noted(&here, 7), Some(1));
        assert_eq!(numbered(&here, Published::number(&one)), Some(1));
        assert_eq!(noted(&there, 7), Some(2));
        assert_eq!(two.value, 2);
        here.remove(&mut one);
        there.remove(&mut two);
        assert_eq!(noted(&there, 7), None);
        Ok(())
    }
}
