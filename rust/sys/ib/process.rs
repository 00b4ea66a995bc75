// SPDX-License-Identifier: GPL-2.0

//! What a process brings: the file by which it has opened the device, and the provider's part of a
//! verbs command; with that what the driver adds to `rdma resource show -dd`.
//!
//! The structures of a command may grow at their end. A request must be as long as the first
//! version of its structure; what an older provider leaves out reads as zeros, and what a newer one
//! adds must be zeros. Of a response the provider gets as much as it has room for, and zeros in
//! what is left.
//!
//! Everybody on the machine may ask for [`Details`]: they must be no secret, such as a key or an
//! address.

use crate::sys::bindings;
use crate::sys::ib::{
    object,
    operations,
    Argument,
    ContextRef,
    IgnoredArgument,
    RawArgument,
    Reference,
    Unseen, //
};
use crate::sys::refusal::{
    EMSGSIZE,
    EOPNOTSUPP, //
};
use crate::sys::ring::Mapping;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::str::CStrExt;
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// An open device file of a driver. Dropping it destroys it.
pub trait Context: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;

    /// A process opens the device.
    fn open(device: &Self::Device, udata: &Udata<'_>) -> Result<Self>
    where
        Self: Sized;
}

type New<'a, C> = object::New<'a, bindings::ib_ucontext, C, <C as Context>::Device>;
type Live<'a, C> = object::Live<'a, bindings::ib_ucontext, C>;
type Gone<'a, C> = object::Gone<'a, bindings::ib_ucontext, C>;

operations! {
    install<'a, C: Context>

    alloc_ucontext(context: New<'a, C>, udata: Udata<'a>) -> Result {
        context.create(|device, ()| Ok((C::open(device, &udata)?, ())))?;
        Ok(())
    }

    dealloc_ucontext(context: Gone<'a, C>) -> Result<Unseen> {
        context.destroy();
        Ok(Unseen)
    }

    /// The device goes away under an open file. Rings stay mapped until the process unmaps them:
    /// their pages are counted, and a ring whose queue is gone is only memory.
    ///
    /// That this operation exists is what lets a netdev or the module go at any time. It also lets
    /// an administrator move the device alone into another network namespace (`rdma dev set NAME
    /// netns`, in exclusive mode): ib_core asks the driver nothing then (`ib_device_set_netns_put`
    /// in device.c). When `enable_driver` runs the move is done, and an error of it leaves the
    /// device in the new namespace without uverbs. So this cannot be refused; as with hardware, the
    /// packets of the device go on to travel through the namespace of its netdev.
    disassociate_ucontext(_context: IgnoredArgument<*mut bindings::ib_ucontext>) -> Result<Unseen> {
        Ok(Unseen)
    }

    /// A process imports the context: what it may learn of it, ib_core has said already.
    query_ucontext(
        _context: IgnoredArgument<*mut bindings::ib_ucontext>,
        _attributes: IgnoredArgument<*mut bindings::uverbs_attr_bundle>,
    ) -> Result {
        Ok(())
    }

    /// Maps what the context offers at the offset of the area.
    mmap(context: Live<'a, C>, area: RawArgument<bindings::vm_area_struct>) -> Result {
        // SAFETY: Both are arguments of `mmap`.
        unsafe { Mapping::mmap(context.reference().as_raw(), area.get()) }
    }

    /// The last reference to an offer is gone.
    mmap_free(offer: RawArgument<bindings::rdma_user_mmap_entry>) -> Result<Unseen> {
        // SAFETY: It is the argument of `mmap_free`: the last reference is gone.
        unsafe { Mapping::free(offer.get()) };
        Ok(Unseen)
    }
}

/// A structure that a provider sends.
pub trait Request: FromBytes + IntoBytes {
    /// Its length when it was first published, which does not change when it grows.
    const FIRST_LENGTH: usize;
}

/// Request and response buffers of one command of a user process.
///
/// # Invariants
///
/// The pointer is the `driver_udata` of an attribute bundle that is valid for `'a`.
pub struct Udata<'a>(NonNull<bindings::ib_udata>, PhantomData<&'a ()>);

impl Argument for Option<Udata<'_>> {
    type Raw = *mut bindings::ib_udata;

    unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Result<Self> {
        // INVARIANT: By the requirement: what is not null is in the bundle of the command.
        Ok(NonNull::new(raw).map(|udata| Udata(udata, PhantomData)))
    }
}

/// Objects of ULPs have no udata; where it must be there, they are refused.
impl Argument for Udata<'_> {
    type Raw = *mut bindings::ib_udata;

    unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Result<Self> {
        // SAFETY: The same requirement.
        unsafe { <Option<Self> as Argument>::from_raw(raw) }?.ok_or_else(EOPNOTSUPP)
    }
}

/// The udata of an operation that gets the whole bundle of attributes; ULPs have none.
pub(super) struct BundleUdata<'a>(pub(super) Option<Udata<'a>>);

impl Argument for BundleUdata<'_> {
    type Raw = *mut bindings::uverbs_attr_bundle;

    unsafe fn from_raw(raw: *mut bindings::uverbs_attr_bundle) -> Result<Self> {
        // SAFETY: The udata is the first field of the bundle (the shim asserts it), so that there
        // is none where there is no bundle.
        Ok(Self(unsafe { Argument::from_raw(raw.cast()) }?))
    }
}

/// The udata of an operation that has neither request nor response of ours: checked, and answered
/// with zeros.
pub(super) struct NoUdata;

impl Argument for NoUdata {
    type Raw = *mut bindings::ib_udata;

    unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Result<Self> {
        // SAFETY: It is null or the udata of the command.
        to_result(unsafe { bindings::ferroce_no_udata_io(raw) })?;
        Ok(Self)
    }
}

impl Udata<'_> {
    /// The process that calls.
    pub fn context(&self) -> Result<ContextRef<'_>> {
        // SAFETY: By the type invariant.
        let context = unsafe { bindings::ferroce_udata_context(self.0.as_ptr()) };
        let context = NonNull::new(context).ok_or(EINVAL)?;
        // SAFETY: The context of a command lives as long as the command runs.
        Ok(unsafe { Reference::from_raw(context) })
    }

    /// Reads the request.
    pub fn request<T: Request>(&self) -> Result<T> {
        const { assert!(T::FIRST_LENGTH <= core::mem::size_of::<T>()) };
        let mut request = T::new_zeroed();
        // SAFETY: By the type invariant; `request` takes any bytes, as many as it has.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.0.as_ptr(),
                (&raw mut request).cast::<c_void>(),
                core::mem::size_of::<T>(),
                T::FIRST_LENGTH,
            )
        })?;
        Ok(request)
    }

    /// Checks that there is no request, or one of zeros.
    pub fn no_request(&self) -> Result {
        // SAFETY: By the type invariant.
        to_result(unsafe { bindings::ferroce_udata_in_empty(self.0.as_ptr()) })
    }

    /// Writes the response.
    pub fn respond<T: IntoBytes + Immutable>(&self, response: &T) -> Result {
        let bytes = response.as_bytes();
        // SAFETY: By the type invariant.
        to_result(unsafe {
            bindings::_ib_respond_udata(
                self.0.as_ptr(),
                bytes.as_ptr().cast::<c_void>(),
                bytes.len(),
            )
        })
    }
}

/// The message that is being written.
///
/// # Invariants
///
/// The pointer is a message of ib_core that only the operation uses.
pub(super) struct NlMessage<'a>(NonNull<bindings::sk_buff>, PhantomData<&'a mut ()>);

impl Argument for NlMessage<'_> {
    type Raw = *mut bindings::sk_buff;

    unsafe fn from_raw(raw: *mut bindings::sk_buff) -> Result<Self> {
        // INVARIANT: By the requirement.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?, PhantomData))
    }
}

impl NlMessage<'_> {
    /// Adds what `write` writes, or nothing if there is no room for it.
    pub(super) fn details(self, write: impl FnOnce(&mut Details<'_>) -> Result) -> Result {
        let message = self.0.as_ptr();
        // SAFETY: By the type invariant.
        let begin = unsafe { bindings::ferroce_details_begin(message) };
        if begin.is_null() {
            return Err(EMSGSIZE());
        }
        let written = write(&mut Details(&self));
        // SAFETY: `begin` is in the message; nothing behind it but what was written.
        unsafe { bindings::ferroce_details_end(message, begin, written.is_ok()) };
        written
    }
}

/// Output of details. The error is lack of room.
pub struct Details<'a>(&'a NlMessage<'a>);

impl Details<'_> {
    /// A number.
    pub fn number(&mut self, name: &CStr, value: impl Into<u64>) -> Result {
        // SAFETY: By the type invariant; the name is copied.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64(self.message(), name.as_char_ptr(), value.into())
        })
    }

    /// A set of flags.
    pub fn flags(&mut self, name: &CStr, value: u32) -> Result {
        // SAFETY: As above.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u32_hex(self.message(), name.as_char_ptr(), value)
        })
    }

    /// A word.
    pub fn word(&mut self, name: &CStr, value: &CStr) -> Result {
        // SAFETY: As above, and so is the word.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_string(
                self.message(),
                name.as_char_ptr(),
                value.as_char_ptr(),
            )
        })
    }

    fn message(&self) -> *mut bindings::sk_buff {
        self.0 .0.as_ptr()
    }
}
