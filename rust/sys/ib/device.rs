// SPDX-License-Identifier: GPL-2.0

//! The RDMA device: what a driver says of it, and how it is made, registered, found and taken down.
//!
//! A [`Driver`] names the types of its objects, from which the table of operations follows. Each
//! kind of object has a file here, with the trait that a driver implements for it and its
//! operations. A verb is a method of the trait and an entry in `operations!`; a kind of object is
//! besides a type in [`Driver`] and a line in [`operations`]. A device has files in sysfs
//! ([`Attribute`]), and is made by `rdma link add ... type ferroce` ([`LinkOps`]).
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h), `struct ib_device_ops`,
//! and [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h).

use crate::core::uabi::DRIVER_ID;
use crate::sys::bindings;
use crate::sys::ib::ah::{
    self,
    AddressHandle, //
};
use crate::sys::ib::cq::{
    self,
    CompletionQueue, //
};
use crate::sys::ib::mr::{
    self,
    MemoryRegion,
    MemoryWindow,
    ProtectionDomain, //
};
use crate::sys::ib::object::Object;
use crate::sys::ib::process::{
    self,
    Context, //
};
use crate::sys::ib::qp::{
    self,
    QueuePair, //
};
use crate::sys::ib::query::{
    self,
    CounterSet, //
};
use crate::sys::ib::srq::{
    self,
    SharedReceiveQueue, //
};
use crate::sys::net::{
    NetDevice,
    Underlay, //
};
use core::any::TypeId;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::{
    from_result,
    to_result, //
};
use kernel::fmt::Write;
use kernel::prelude::*;
use kernel::str::{
    CStrExt,
    Formatter, //
};
use kernel::sync::atomic::{
    Atomic,
    Full, //
};
use kernel::sync::{
    Arc,
    SetOnce, //
};

/// Creates a device on a netdev and registers it: from here on users can open it.
///
/// `guid` is the node GUID, big-endian. On failure `data` is dropped and nothing is left.
///
/// # Errors
///
/// `EINVAL` for a name with a `%`, which ib_core would take for a format, and if `D` was not
/// [installed](install); `ENFILE` if there is a device of this name; `ENOMEM`.
pub fn register<D: Driver>(name: &CStr, underlay: &Underlay, guid: u64, data: D::Device) -> Result {
    if name.to_bytes().contains(&b'%') || !is_installed::<D>() {
        return Err(EINVAL);
    }
    let netdev = underlay.netdev();
    // SAFETY: The size is that of our object; the namespace is the one that the resident keeps.
    let device = unsafe {
        bindings::_ib_alloc_device(
            Object::<bindings::ib_device, D::Device>::SIZE,
            underlay.resident().as_ptr(),
        )
    };
    let core = NonNull::new(device).ok_or(ENOMEM)?;
    // SAFETY: `device` is fresh. Our part is complete before `ib_set_device_ops` installs the
    // function that drops it, so that `ib_dealloc_device` is right from here on.
    unsafe {
        Object::init(core, data);
        (*device).node_guid = guid;
        (*device).uverbs_cmd_mask |= D::COMMANDS;
        bindings::ferroce_link_made(device);
        bindings::ferroce_describe(device, netdev.as_ptr(), D::DESCRIPTION.as_char_ptr());
        let ops = operations::<D>(bindings::ferroce_this_module());
        bindings::ib_set_device_ops(device, &ops);
    }
    // SAFETY: `device` is not registered yet; the name outlives the call.
    let ret = unsafe {
        let ret = bindings::ib_device_set_netdev(device, netdev.as_ptr(), 1);
        if ret == 0 {
            bindings::ib_register_device(device, name.as_char_ptr(), core::ptr::null_mut())
        } else {
            ret
        }
    };
    if ret != 0 {
        // SAFETY: Registration failed, so that the device is ours alone.
        unsafe { bindings::ib_dealloc_device(device) };
        return Err(Error::from_errno(ret));
    }
    Ok(())
}

/// A registered device, held.
///
/// # Invariants
///
/// The pointer is a device whose operations are those of `D`, with a reference of
/// `ib_device_try_get` that this value owns: it is not unregistered while this value lives.
pub struct Registered<D: Driver>(NonNull<bindings::ib_device>, PhantomData<D>);

impl<D: Driver> Registered<D> {
    /// The device on this netdev, if there is one of ours.
    pub fn by_netdev(netdev: &NetDevice) -> Option<Self> {
        if !is_installed::<D>() {
            return None;
        }
        // SAFETY: The netdev is referenced.
        let device = unsafe { bindings::ib_device_get_by_netdev(netdev.as_ptr(), DRIVER_ID) };
        // INVARIANT: The callee took the reference. The id finds only devices of ours, and `D` has
        // made them.
        NonNull::new(device).map(|device| Self(device, PhantomData))
    }

    /// The driver type.
    pub fn data(&self) -> &D::Device {
        // SAFETY: By the type invariant.
        unsafe { Object::private(self.0) }
    }

    /// Reports a change of the port's state (PORT_ERR, PORT_ACTIVE) to the users of the device,
    /// once for each change.
    pub fn report_port_state(&self, netdev: &NetDevice) {
        // SAFETY: By the type invariant; the netdev is referenced.
        unsafe { bindings::ib_dispatch_port_state_event(self.0.as_ptr(), netdev.as_ptr()) };
    }

    /// Like [`Self::report_port_state`], when the netdev was set down. It sleeps until the users
    /// have got the event, a tenth of a second at most: those about GIDs that go come behind it.
    pub fn report_port_down(&self, netdev: &NetDevice) {
        // SAFETY: By the type invariant; the netdev is referenced.
        unsafe { bindings::ferroce_report_port_down(self.0.as_ptr(), netdev.as_ptr()) };
    }

    /// Makes a GID of each address of the netdev, and of the VLANs on it, that has none. Sleeps,
    /// and takes the RTNL.
    ///
    /// ib_core does so by itself when the device is registered, and for Ethernet devices always.
    pub fn add_gids(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rdma_roce_rescan_device(self.0.as_ptr()) };
    }

    /// Takes the device down from a context that may not wait for it.
    pub fn unregister_queued(self) {
        // SAFETY: By the type invariant the device is registered.
        unsafe { bindings::ib_unregister_device_queued(self.0.as_ptr()) };
    }
}

impl<D: Driver> Drop for Registered<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

/// Unregisters every device of the driver and waits until they are gone. May sleep.
pub fn unregister_all() {
    // SAFETY: The id belongs to us alone.
    unsafe { bindings::ib_unregister_driver(DRIVER_ID) };
}

/// One file of each device. `D` is what a device is to the driver.
pub struct Attribute<D: 'static> {
    /// Name of the file.
    pub name: &'static CStr,
    /// Writes what the file contains.
    pub show: fn(&D, &mut dyn Write) -> kernel::fmt::Result,
    /// Takes what was written to the file; without it the file is for reading only.
    pub store: Option<fn(&D, &CStr) -> Result>,
}

/// The driver of this module, once the shim has its files. What ib_core and the shim know by
/// [`DRIVER_ID`] or by the one type of links is a device of this driver.
static INSTALLED: SetOnce<TypeId> = SetOnce::new();

/// Makes `D` the driver of this module, and gives the files of its devices to the shim.
///
/// # Errors
///
/// `EBUSY` if there is one already.
pub fn install<D: Driver>() -> Result {
    static BEGUN: Atomic<bool> = Atomic::new(false);
    const { assert!(D::ATTRIBUTES.len() <= bindings::FERROCE_MAX_ATTRIBUTES as usize) };
    if BEGUN.xchg(true, Full) {
        return Err(EBUSY);
    }
    for (place, attribute) in D::ATTRIBUTES.iter().enumerate() {
        // SAFETY: No device has what is changed here, as `INSTALLED` is empty; nobody else changes
        // it, as `BEGUN` was false. The name is constant, and there is such a place.
        unsafe {
            bindings::ferroce_set_attribute(
                place as c_uint,
                attribute.name.as_char_ptr(),
                Some(show::<D>),
                match attribute.store {
                    Some(_) => Some(store::<D>),
                    None => None,
                },
            )
        };
    }
    INSTALLED.populate(TypeId::of::<D>());
    Ok(())
}

/// Whether `D` is the driver of this module.
fn is_installed<D: Driver>() -> bool {
    INSTALLED.as_ref() == Some(&TypeId::of::<D>())
}

/// # Safety
///
/// `device` must be registered, with a driver's part that is a `D::Device`.
unsafe fn device<'a, D: Driver>(device: *mut bindings::ib_device) -> Result<&'a D::Device> {
    let device = NonNull::new(device).ok_or(ENODEV)?;
    // SAFETY: By the requirement.
    Ok(unsafe { Object::<bindings::ib_device, D::Device>::private(device) })
}

/// # Safety
///
/// For the shim alone, and devices as [`device`] wants them: `buf` is a page.
unsafe extern "C" fn show<D: Driver>(
    dev: *mut bindings::ib_device,
    index: c_uint,
    buf: *mut c_char,
) -> isize {
    from_result(|| {
        let attribute = D::ATTRIBUTES.get(index as usize).ok_or(EINVAL)?;
        // SAFETY: By the requirement; sysfs has zeroed the page.
        let page = unsafe { core::slice::from_raw_parts_mut(buf, bindings::PAGE_SIZE) };
        let mut text = Formatter::new(page);
        // SAFETY: By the requirement.
        (attribute.show)(unsafe { device::<D>(dev) }?, &mut text).map_err(|_| ENOSPC)?;
        Ok(text.bytes_written() as isize)
    })
}

/// # Safety
///
/// For the shim alone, and devices as [`device`] wants them: `buf` is a C string.
unsafe extern "C" fn store<D: Driver>(
    dev: *mut bindings::ib_device,
    index: c_uint,
    buf: *const c_char,
) -> c_int {
    from_result(|| {
        let attribute = D::ATTRIBUTES.get(index as usize).ok_or(EINVAL)?;
        let store = attribute.store.ok_or(EACCES)?;
        // SAFETY: By the requirement.
        store(unsafe { device::<D>(dev) }?, unsafe {
            CStr::from_char_ptr(buf)
        })?;
        Ok(0)
    })
}

/// A driver: the types of its objects.
///
/// Objects are values that belong to the driver. They are dropped when ib_core destroys the object
/// that they stand behind: nothing may refer to that any more then. Their methods run in process
/// context and may sleep.
pub trait Driver: Sized + 'static {
    /// The device type.
    type Device: query::RdmaDevice;
    /// The files of a device in sysfs, at most as many as the shim has places for.
    const ATTRIBUTES: &'static [Attribute<Self::Device>];
    /// `uverbs_abi_ver` of the device.
    const ABI_VERSION: u32;
    /// What the description of the node begins with; the name of the host follows, if it has one.
    const DESCRIPTION: &'static CStr;
    /// Commands that processes may use beside those that every device has: see
    /// [`crate::sys::ib::query::command`].
    const COMMANDS: u64;

    /// An open device file.
    type Context: Context<Device = Self::Device>;
    /// A protection domain.
    type Pd: ProtectionDomain<Device = Self::Device>;
    /// An address handle.
    type Ah: AddressHandle<Device = Self::Device, Pd = Self::Pd>;
    /// A completion queue.
    type Cq: CompletionQueue<Device = Self::Device>;
    /// A queue pair.
    type Qp: QueuePair<
        Device = Self::Device,
        Pd = Self::Pd,
        Cq = Self::Cq,
        Srq = Self::Srq,
        Ah = Self::Ah,
    >;
    /// A shared receive queue.
    type Srq: SharedReceiveQueue<Device = Self::Device, Pd = Self::Pd>;
    /// A memory region.
    type Mr: MemoryRegion<Device = Self::Device, Pd = Self::Pd>;
    /// A memory window.
    type Mw: MemoryWindow<Device = Self::Device, Pd = Self::Pd>;
    /// Counters for some queue pairs.
    type Counters: CounterSet<Device = Self::Device, Qp = Self::Qp>;
}

/// The table of the driver that is installed. `ib_set_device_ops` copies it.
fn operations<D: Driver>(module: *mut bindings::module) -> bindings::ib_device_ops {
    let mut ops = bindings::ib_device_ops {
        owner: module,
        driver_id: DRIVER_ID,
        uverbs_abi_ver: D::ABI_VERSION,
        device_group: core::ptr::addr_of!(bindings::ferroce_device_group),
        size_ib_ucontext: Object::<bindings::ib_ucontext, D::Context>::SIZE,
        size_ib_pd: Object::<bindings::ib_pd, D::Pd>::SIZE,
        size_ib_ah: Object::<bindings::ib_ah, D::Ah>::SIZE,
        size_ib_cq: Object::<bindings::ib_cq, D::Cq>::SIZE,
        size_ib_qp: Object::<bindings::ib_qp, D::Qp>::SIZE,
        size_ib_mw: Object::<bindings::ib_mw, D::Mw>::SIZE,
        size_ib_srq: Object::<bindings::ib_srq, D::Srq>::SIZE,
        size_rdma_counter: Object::<bindings::rdma_counter, D::Counters>::SIZE,
        ..pin_init::zeroed()
    };
    ops.set_uverbs_robust_udata(1);
    query::install::<D::Device>(&mut ops);
    process::install::<D::Context>(&mut ops);
    mr::install_pd::<D::Pd>(&mut ops);
    ah::install::<D::Ah>(&mut ops);
    cq::install::<D::Cq>(&mut ops);
    qp::install::<D::Qp>(&mut ops);
    srq::install::<D::Srq>(&mut ops);
    mr::install::<D::Mr>(&mut ops);
    mr::install_mw::<D::Mw>(&mut ops);
    query::install_counters::<D::Counters>(&mut ops);
    ops
}

/// The creator of links.
pub trait LinkOps: Send + Sync + 'static {
    /// The driver type of the devices.
    type Driver: Driver;

    /// Makes an RDMA device `name` on `netdev`. May sleep; the RTNL is not held.
    ///
    /// There is no answer but the errno: ib_core keeps the netlink extack to itself.
    fn new_link(&self, name: &CStr, netdev: &NetDevice) -> Result;

    /// The link of `device` is deleted: ib_core unregisters the device next. May sleep; the RTNL is
    /// not held. This can come for as long as there are devices, also without a registration.
    fn delete_link(device: &<Self::Driver as Driver>::Device);
}

/// A link type that is registered; dropping it waits for links that are just made.
pub struct LinkOpsRegistration<T: LinkOps> {
    // The context of the calls.
    _ops: Arc<T>,
}

impl<T: LinkOps> LinkOpsRegistration<T> {
    /// Registers `name` as a link type. Only one registration may exist.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one already, `EINVAL` if its driver was not [installed](install).
    pub fn new(name: &'static CStr, ops: Arc<T>) -> Result<Self> {
        if !is_installed::<T::Driver>() {
            return Err(EINVAL);
        }
        // SAFETY: The name is static, and `ops`, which is kept here, outlives the registration.
        to_result(unsafe {
            bindings::ferroce_link_register(
                name.as_char_ptr(),
                Some(Self::new_link),
                Some(Self::delete_link),
                Arc::as_ptr(&ops).cast_mut().cast(),
            )
        })?;
        Ok(Self { _ops: ops })
    }

    /// # Safety
    ///
    /// Only for ib_core, through the shim: `context` is the `T` of a registration, `name` a C
    /// string, `netdev` a net device, all alive during the call.
    unsafe extern "C" fn new_link(
        context: *mut c_void,
        name: *const c_char,
        netdev: *mut bindings::net_device,
    ) -> c_int {
        // SAFETY: By the requirement above.
        let ops = unsafe { &*context.cast::<T>() };
        // SAFETY: By the requirement above.
        let name = unsafe { CStr::from_char_ptr(name) };
        // SAFETY: By the requirement above.
        let netdev = unsafe { NetDevice::from_raw(netdev) };

        from_result(|| {
            ops.new_link(name, &netdev.ok_or(ENODEV)?)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only for ib_core, through the shim: `device` is one that [`register`] has made, and is alive
    /// during the call.
    unsafe extern "C" fn delete_link(device: *mut bindings::ib_device) {
        if let Some(device) = NonNull::new(device) {
            // SAFETY: By the requirement above; ib_core holds a reference. `T::Driver` is the
            // driver that was installed, or there would be no registration, so it made the device.
            T::delete_link(unsafe { Object::private(device) });
        }
    }
}

impl<T: LinkOps> Drop for LinkOpsRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::ferroce_link_unregister() };
    }
}
