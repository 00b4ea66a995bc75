// SPDX-License-Identifier: GPL-2.0

//! Address vectors, where a connection or a datagram goes, and address handles.

pub use crate::sys::table::AllocContext;

use crate::sys::bindings;
use crate::sys::ib::object::{
    self,
    Object, //
};
use crate::sys::ib::process::{
    NoUdata,
    Udata, //
};
use crate::sys::ib::{
    operations,
    Argument, //
};
use crate::sys::net::{
    NetDevice,
    NetNs, //
};
use crate::sys::refusal::EOPNOTSUPP;
use core::ptr::NonNull;
use kernel::prelude::*;

/// An address handle of a driver. Dropping it destroys it.
pub trait AddressHandle: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The protection domain type.
    type Pd: Send + Sync + 'static;

    /// Creates a handle of a process for `av`, or without `udata` of a ULP.
    fn create(
        device: &Self::Device,
        pd: &Self::Pd,
        av: AddressVector,
        context: AllocContext,
        udata: Option<&Udata<'_>>,
    ) -> Result<Self>
    where
        Self: Sized;

    /// What it was created for.
    fn vector(&self) -> &AhAttr;
}

type New<'a, A> = object::New<'a, bindings::ib_ah, A, <A as AddressHandle>::Device>;
type Live<'a, A> = object::Live<'a, bindings::ib_ah, A>;
type Gone<'a, A> = object::Gone<'a, bindings::ib_ah, A>;

impl<'a, A: AddressHandle> New<'a, A> {
    /// The domain that it is made in.
    fn pd(&self) -> Option<&'a A::Pd> {
        // SAFETY: The handle is being created, so that ib_core has filled in its domain, which is
        // complete and outlives the call; its driver's part is what the table says.
        unsafe { NonNull::new((*self.as_raw()).pd).map(|pd| Object::private(pd)) }
    }
}

/// Attributes of a new handle.
struct AhInit(AddressVector, AllocContext);

impl Argument for AhInit {
    type Raw = *mut bindings::rdma_ah_init_attr;

    unsafe fn from_raw(raw: *mut bindings::rdma_ah_init_attr) -> Result<Self> {
        // SAFETY: By the requirement; ib_core has filled in the source GID, and holds it during
        // the call.
        let (av, flags) = unsafe { (AddressVector::from_raw(&*(*raw).ah_attr)?, (*raw).flags) };
        let may_sleep = flags & bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE != 0;
        let context = if may_sleep {
            AllocContext::Sleeps
        } else {
            AllocContext::Atomic
        };
        Ok(Self(av, context))
    }
}

operations! {
    install<'a, A: AddressHandle>

    create_user_ah(ah: New<'a, A>, init: AhInit, udata: Udata<'a>) -> Result {
        let pd = ah.pd().ok_or(EINVAL)?;
        let AhInit(av, context) = init;
        ah.create(|device, ()| Ok((A::create(device, pd, av, context, Some(&udata))?, ())))?;
        Ok(())
    }

    create_ah(ah: New<'a, A>, init: AhInit, _udata: NoUdata) -> Result {
        let pd = ah.pd().ok_or(EINVAL)?;
        let AhInit(av, context) = init;
        ah.create(|device, ()| Ok((A::create(device, pd, av, context, None)?, ())))?;
        Ok(())
    }

    /// ib_mad asks for it, under a spinlock, to find the question to an answer.
    query_ah(ah: Live<'a, A>, vector: &'a mut bindings::rdma_ah_attr) -> Result {
        *vector = *ah.vector().as_raw();
        Ok(())
    }

    destroy_ah(ah: Gone<'a, A>, _flags: u32) -> Result {
        ah.destroy();
        Ok(())
    }
}

/// A 16-byte GID: an IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`.
pub type Gid = [u8; 16];

/// The destination of a connection: an address vector with a resolved source GID.
#[derive(Clone)]
pub struct AddressVector {
    /// The vector as the user gave it, for queries; without its reference to the GID table.
    pub vector: AhAttr,
    /// Index of the netdev of the source GID: the link's own, or a VLAN on top of it. It is not
    /// held, as a connection must not keep a netdev from going away.
    pub ifindex: i32,
    /// The namespace that this netdev is in, and that `ifindex` belongs to. It may be another one
    /// than that of the link: ib_core takes the addresses of VLANs wherever they are.
    pub netns: NetNs,
    /// MTU of this netdev.
    pub netdev_mtu: u32,
    /// The destination is a GID of the same device.
    pub to_own_device: bool,
    /// Source GID.
    pub source: Gid,
    /// Destination GID.
    pub destination: Gid,
    /// TOS or traffic class of the packets.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// 20-bit flow label (IPv6).
    pub flow_label: u32,
}

/// An address vector that is only kept to be handed back.
#[derive(Clone, Copy)]
pub struct AhAttr(bindings::rdma_ah_attr);

// SAFETY: Plain values: the one pointer in it is null.
unsafe impl Send for AhAttr {}
// SAFETY: As above.
unsafe impl Sync for AhAttr {}

impl Default for AhAttr {
    fn default() -> Self {
        Self(pin_init::zeroed())
    }
}

impl AhAttr {
    pub(super) fn as_raw(&self) -> &bindings::rdma_ah_attr {
        &self.0
    }
}

impl AddressVector {
    /// # Errors
    ///
    /// `EINVAL` without a source GID, `EOPNOTSUPP` for one of RoCE v1, `ENODEV` for one that has
    /// just gone.
    ///
    /// # Safety
    ///
    /// `raw` must be a live attribute whose source GID, if any, is referenced.
    pub(super) unsafe fn from_raw(raw: &bindings::rdma_ah_attr) -> Result<AddressVector> {
        let attr = raw.grh.sgid_attr;
        if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE || attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the requirement `attr` is referenced for the time of the call.
        let (gid_type, source, to_own_device) = unsafe {
            (
                (*attr).gid_type,
                (*attr).gid.raw,
                bindings::ferroce_is_own_gid(attr, &raw.grh.dgid),
            )
        };
        if gid_type != bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP {
            return Err(EOPNOTSUPP());
        }
        // SAFETY: As above; the callee holds the netdev for us.
        let netdev = unsafe { NetDevice::from_raw_owned(bindings::ferroce_gid_netdev(attr)) };
        let netdev = netdev.ok_or(ENODEV)?;
        let mut vector = *raw;
        vector.grh.sgid_attr = core::ptr::null();
        Ok(AddressVector {
            vector: AhAttr(vector),
            ifindex: netdev.ifindex(),
            netns: NetNs::of(&netdev).ok_or(ENODEV)?,
            netdev_mtu: netdev.mtu(),
            to_own_device,
            source,
            // SAFETY: Any bytes are a GID.
            destination: unsafe { raw.grh.dgid.raw },
            traffic_class: raw.grh.traffic_class,
            hop_limit: raw.grh.hop_limit,
            flow_label: raw.grh.flow_label & 0xf_ffff,
        })
    }
}
