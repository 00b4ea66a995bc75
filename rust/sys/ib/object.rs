// SPDX-License-Identifier: GPL-2.0

//! The C objects of ib_core, with the driver's part behind them: created, used and destroyed.
//!
//! ib_core frees the memory of an object without asking when its creation fails, and right after
//! the operation that destroys it. So the driver's part is written as the last step of a creation
//! that succeeds, and dropped by the operation that destroys: [`New`], [`Live`] and [`Gone`] are
//! the three ways in which an operation meets an object. What must end with the object whatever
//! the driver does is a [`Companion`].

use crate::sys::bindings;
use crate::sys::ib::event::{
    Attached,
    CoreUpcall, //
};
use crate::sys::ib::{
    Argument,
    ContextRef,
    Reference, //
};
use crate::sys::ring::Offsets;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::types::Opaque;

/// State that `sys` keeps with an object, from before its creation to after its destruction.
pub(super) trait Companion<C>: Sized {
    /// The part that the driver gets.
    type Handle;

    /// For an object that is being created.
    ///
    /// # Safety
    ///
    /// `core` must be valid until the result was dropped.
    unsafe fn new(core: NonNull<C>) -> Result<Self>;

    /// A handle for the driver.
    fn handle(&self) -> Self::Handle;

    /// The object is about to be destroyed.
    fn end(&self) {}
}

impl<C> Companion<C> for () {
    type Handle = ();

    unsafe fn new(_core: NonNull<C>) -> Result<Self> {
        Ok(())
    }

    fn handle(&self) {}
}

impl<C: 'static> Companion<C> for Attached<C> {
    type Handle = CoreUpcall<C>;

    unsafe fn new(core: NonNull<C>) -> Result<Self> {
        // SAFETY: By the requirement: ib_core does not change the handlers of an object, but for
        // the `comp_handler` that `__ib_alloc_cq()` sets when a CQ is made.
        unsafe { Attached::new(core) }
    }

    fn handle(&self) -> CoreUpcall<C> {
        CoreUpcall::of(self)
    }

    fn end(&self) {
        self.revoke();
    }
}

impl Companion<bindings::ib_ucontext> for Offsets {
    type Handle = ();

    unsafe fn new(core: NonNull<bindings::ib_ucontext>) -> Result<Self> {
        // SAFETY: The same requirement.
        unsafe { Offsets::new(core) }
    }

    fn handle(&self) {}
}

/// A C object of ib_core.
pub(super) trait Core: Sized + 'static {
    /// State that `sys` keeps with it.
    type Companion: Companion<Self>;

    /// The device of an object.
    ///
    /// # Safety
    ///
    /// `core` must be valid.
    unsafe fn device(core: NonNull<Self>) -> *mut bindings::ib_device;
}

/// The part of the companion of a `C` that the driver gets.
type Handle<C> = <<C as Core>::Companion as Companion<C>>::Handle;

macro_rules! core_objects {
    ($($name:ident with $companion:ty,)*) => {
        $(impl Core for bindings::$name {
            type Companion = $companion;

            unsafe fn device(core: NonNull<Self>) -> *mut bindings::ib_device {
                // SAFETY: By the requirement.
                unsafe { (*core.as_ptr()).device }
            }
        })*
    };
}
core_objects! {
    ib_ucontext with Offsets,
    ib_pd with (),
    ib_ah with (),
    ib_cq with Attached<Self>,
    ib_qp with Attached<Self>,
    ib_srq with Attached<Self>,
    ib_mr with (),
    ib_mw with (),
    rdma_counter with (),
}

impl Core for bindings::ib_device {
    type Companion = ();

    unsafe fn device(core: NonNull<Self>) -> *mut bindings::ib_device {
        core.as_ptr()
    }
}

/// A C object, followed by what belongs to us.
#[repr(C)]
pub(super) struct Object<C: Core, P> {
    core: Opaque<C>,
    companion: MaybeUninit<C::Companion>,
    private: MaybeUninit<P>,
}

impl<C: Core, P> Object<C, P> {
    /// The value of `size_ib_*`.
    pub(super) const SIZE: usize = {
        // ib_core allocates by `kzalloc`, which promises no more.
        assert!(core::mem::align_of::<Self>() <= bindings::ARCH_KMALLOC_MINALIGN);
        core::mem::size_of::<Self>()
    };

    /// Completes an object that `sys` keeps nothing with.
    ///
    /// # Safety
    ///
    /// `core` must be a C object of [`Self::SIZE`] bytes whose other parts are not initialised.
    pub(super) unsafe fn init(core: NonNull<C>, private: P)
    where
        C: Core<Companion = ()>,
    {
        // SAFETY: By the requirement. A `()` needs no initialisation.
        unsafe { (*core.cast::<Self>().as_ptr()).private.write(private) };
    }

    /// State that `sys` keeps with the object.
    ///
    /// # Safety
    ///
    /// `core` must be an object that has it, and that outlives `'a`.
    unsafe fn companion<'a>(core: NonNull<C>) -> &'a C::Companion {
        // SAFETY: By the requirement.
        unsafe { (*core.cast::<Self>().as_ptr()).companion.assume_init_ref() }
    }

    /// The driver's part.
    ///
    /// # Safety
    ///
    /// `core` must be an object whose creation is complete and which outlives `'a`.
    pub(super) unsafe fn private<'a>(core: NonNull<C>) -> &'a P {
        // SAFETY: By the requirement.
        unsafe { (*core.cast::<Self>().as_ptr()).private.assume_init_ref() }
    }

    /// Ends the upcalls, then drops the driver's part, then the companion.
    ///
    /// # Safety
    ///
    /// As for [`Self::private`], and no part may be used afterwards.
    unsafe fn drop_parts(core: NonNull<C>) {
        let object = core.cast::<Self>().as_ptr();
        // SAFETY: By the requirement.
        unsafe {
            Self::companion(core).end();
            (*object).private.assume_init_drop();
            (*object).companion.assume_init_drop();
        }
    }
}

impl ContextRef<'_> {
    /// Where the file offers what is mapped.
    pub(in crate::sys) fn offsets(&self) -> &Offsets {
        // SAFETY: By the type invariant; the companion of a context is there before a driver sees
        // it and after, and its place does not depend on the type of the driver's part.
        unsafe { Object::<bindings::ib_ucontext, ()>::companion(self.core()) }
    }
}

/// An object that is being created; `P` is what it will be to the driver, `D` is the device.
///
/// # Invariants
///
/// The pointer is a C object of `Object<C, P>::SIZE` bytes whose other parts are not initialised,
/// on a device whose driver's part is a `D`; both are valid for `'a`.
pub(super) struct New<'a, C, P, D>(NonNull<C>, PhantomData<(&'a D, P)>);

impl<'a, C: Core, P, D> New<'a, C, P, D> {
    /// The C object, with what ib_core has filled in.
    pub(super) fn as_raw(&self) -> *mut C {
        self.0.as_ptr()
    }

    /// Lets `make` make the driver's part, and completes the object with it. What `make` returns
    /// besides is returned, with the C object, for what ib_core wants to be filled in.
    ///
    /// If it fails, upcalls have ended when this returns.
    pub(super) fn create<R>(
        self,
        make: impl FnOnce(&'a D, Handle<C>) -> Result<(P, R)>,
    ) -> Result<(Reference<'a, C>, R)> {
        let object = self.0.cast::<Object<C, P>>().as_ptr();
        // SAFETY: By the type invariant.
        let device = unsafe {
            let device = NonNull::new(C::device(self.0)).ok_or(ENODEV)?;
            Object::<bindings::ib_device, D>::private(device)
        };
        // SAFETY: By the type invariant. The companion is dropped below, or by `drop_parts` when
        // the object is destroyed, and ib_core frees the object after either.
        let companion = unsafe { C::Companion::new(self.0) }?;
        let handle = companion.handle();
        // SAFETY: By the type invariant. What is made first may be used while the rest is made.
        unsafe { (*object).companion.write(companion) };
        match make(device, handle) {
            Ok((private, more)) => {
                // SAFETY: By the type invariant; `self` is used up.
                unsafe { (*object).private.write(private) };
                // SAFETY: By the type invariant.
                Ok((unsafe { Reference::from_raw(self.0) }, more))
            }
            Err(e) => {
                // SAFETY: Written above; there is nothing else of the object.
                unsafe { (*object).companion.assume_init_drop() };
                Err(e)
            }
        }
    }
}

/// An object that exists; it dereferences to what it is to the driver.
///
/// # Invariants
///
/// The pointer is a complete object, valid for `'a`, on a device whose driver's part is a `D`.
pub(super) struct Live<'a, C, P, D = ()>(NonNull<C>, PhantomData<(&'a P, &'a D)>);

impl<'a, C: Core, P, D> Live<'a, C, P, D> {
    /// The driver part of the object.
    pub(super) fn private(&self) -> &'a P {
        // SAFETY: By the type invariant.
        unsafe { Object::private(self.0) }
    }

    /// The C object.
    pub(super) fn reference(&self) -> Reference<'a, C> {
        // SAFETY: By the type invariant.
        unsafe { Reference::from_raw(self.0) }
    }

    /// The driver part of its device.
    pub(super) fn device(&self) -> Result<&'a D> {
        // SAFETY: By the type invariant.
        unsafe {
            let device = NonNull::new(C::device(self.0)).ok_or(ENODEV)?;
            Ok(Object::<bindings::ib_device, D>::private(device))
        }
    }

    /// Ends the upcalls of an object that is about to be destroyed. May sleep.
    pub(super) fn end_upcalls(&self) {
        // SAFETY: By the type invariant.
        unsafe { Object::<C, P>::companion(self.0) }.end();
    }
}

impl<C: Core, P, D> Deref for Live<'_, C, P, D> {
    type Target = P;

    fn deref(&self) -> &P {
        self.private()
    }
}

/// An object that is being destroyed.
///
/// # Invariants
///
/// The pointer is a complete object that nobody else uses.
pub(super) struct Gone<'a, C, P>(NonNull<C>, PhantomData<(&'a C, P)>);

impl<C: Core, P> Gone<'_, C, P> {
    /// The driver part of the object, which may refuse destruction.
    pub(super) fn private(&self) -> &P {
        // SAFETY: By the type invariant.
        unsafe { Object::private(self.0) }
    }

    /// Ends the upcalls, then drops what the object is to the driver. May sleep.
    pub(super) fn destroy(self) {
        // SAFETY: By the type invariant; `self` is used up.
        unsafe { Object::<C, P>::drop_parts(self.0) };
    }

    /// Like [`Self::destroy`], for an object that the driver itself has allocated by [`allocate`].
    pub(super) fn destroy_and_free(self) {
        let object = self.0.cast::<MaybeUninit<Object<C, P>>>();
        self.destroy();
        // SAFETY: The memory is from `allocate`, and ib_core has left it to us to free.
        drop(unsafe { KBox::from_raw(object.as_ptr()) });
    }
}

macro_rules! arguments {
    ($($name:ident<$($part:ident),*>),*) => {
        $(impl<C: Core, $($part),*> Argument for $name<'_, C, $($part),*> {
            type Raw = *mut C;

            unsafe fn from_raw(raw: *mut C) -> Result<Self> {
                // INVARIANT: By the requirement, for an operation that creates, uses or destroys.
                // The table says `SIZE`, and what ib_core hands to one that creates is zeroed
                // memory but for its own fields.
                Ok(Self(NonNull::new(raw).ok_or(EINVAL)?, PhantomData))
            }

            unsafe fn device(raw: *mut C) -> *const bindings::ib_device {
                // SAFETY: By the requirement the object is valid, with what ib_core has filled in.
                NonNull::new(raw).map_or(core::ptr::null(), |core| unsafe { C::device(core) })
            }
        })*
    };
}
arguments!(New<P, D>, Live<P, D>, Gone<P>);

/// Allocates an object that ib_core leaves to the driver to allocate, complete with `private`.
pub(super) fn allocate<'a, C: Core<Companion = ()>, P>(private: P) -> Result<Reference<'a, C>> {
    let object = KBox::<Object<C, P>>::new_uninit(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
    // The evaluation of `SIZE` checks the alignment.
    let _ = Object::<C, P>::SIZE;
    let core = NonNull::from(KBox::leak(object)).cast::<C>();
    // SAFETY: Fresh and zeroed, of the right size.
    unsafe { Object::init(core, private) };
    // SAFETY: It is valid until it is freed by `destroy_and_free`.
    Ok(unsafe { Reference::from_raw(core) })
}
