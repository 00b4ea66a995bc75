// SPDX-License-Identifier: GPL-2.0

//! The contract with ib_core: one trait, and the table of operations that calls it.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h), `struct ib_device_ops`.

use super::limits::{
    DeviceLimits,
    PortState, //
};
use super::object::{
    CqRef,
    Object,
    PdRef,
    QpRef, //
};
use super::qp::{
    Access,
    Attributes,
    Capacity,
    Change,
    Created,
    Init,
    Path,
    State, //
};
use super::udata::{
    self,
    Udata, //
};
use crate::sys::bindings;
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::ring::Mapping;
use kernel::prelude::*;

/// What a driver does for ib_core.
///
/// Functions that create return what belongs to the driver; the functions that destroy get it
/// back, and afterwards ib_core frees its own object: nothing may refer to that any more.
/// All run in process context and may sleep, except where it says so.
pub trait Driver: Sized + 'static {
    /// `driver_id` of the device.
    const ID: u32;
    /// `uverbs_abi_ver` of the device.
    const ABI_VERSION: u32;
    /// Names of the port's counters, in the order of [`Driver::counters`].
    const COUNTERS: &'static [CounterName];

    /// What a device is to the driver.
    type Device: Send + Sync;
    /// What a protection domain is.
    type Pd: Send + Sync;
    /// What an address handle is.
    type Ah: Send + Sync;
    /// What a completion queue is.
    type Cq: Send + Sync;
    /// What a queue pair is.
    type Qp: Send + Sync;
    /// What a memory region is.
    type Mr: Send + Sync;

    /// The limits of the device.
    fn query_device(device: &Self::Device) -> DeviceLimits;
    /// The state of the port.
    fn query_port(device: &Self::Device) -> PortState;
    /// Fills the counters of the port.
    fn counters(device: &Self::Device, values: &mut [u64]);
    /// The switch of the local path.
    fn local_path(device: &Self::Device) -> bool;
    /// Turns the local path on or off.
    fn set_local_path(device: &Self::Device, on: bool);

    /// A process opened the device.
    fn alloc_context(device: &Self::Device, udata: &Udata<'_>) -> Result;
    /// Creates a protection domain.
    fn alloc_pd(device: &Self::Device) -> Result<Self::Pd>;
    /// Creates an address handle.
    fn create_ah(device: &Self::Device, path: Path) -> Result<Self::Ah>;

    /// Creates a completion queue of at least `entries`; returns how many it has.
    fn create_cq(
        device: &Self::Device,
        cq: CqRef<'_>,
        entries: u32,
        udata: &Udata<'_>,
    ) -> Result<(Self::Cq, u32)>;
    /// Destroys a completion queue.
    fn destroy_cq(cq: Self::Cq);

    /// Creates an RC queue pair.
    fn create_qp(
        device: &Self::Device,
        pd: &Self::Pd,
        init: Init<'_, Self::Cq>,
        udata: &Udata<'_>,
    ) -> Result<Created<Self::Qp>>;
    /// Changes a queue pair; ib_core has checked nothing but the ranges of the types.
    fn modify_qp(qp: &Self::Qp, change: Change) -> Result;
    /// State, whether it is draining, attributes and capacity of a queue pair.
    fn query_qp(qp: &Self::Qp) -> (State, bool, Attributes, Capacity, bool);
    /// Destroys a queue pair.
    fn destroy_qp(qp: Self::Qp);
    /// The process has put send requests into the ring.
    fn send_doorbell(qp: &Self::Qp) -> Result;
    /// The process has put receive requests into the ring.
    fn recv_doorbell(qp: &Self::Qp) -> Result;

    /// Registers `len` bytes at `start` of the calling process, to be addressed from `iova` on.
    /// Returns the region and its key, which is both local and remote.
    fn reg_user_mr(
        device: &Self::Device,
        pd: PdRef<'_>,
        domain: &Self::Pd,
        start: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<(Self::Mr, u32)>;
    /// Deregisters a region: when it returns, nothing accesses the memory any more.
    fn dereg_mr(mr: Self::Mr);
}

/// The name of a counter, as C wants it.
#[repr(transparent)]
pub struct CounterName(bindings::rdma_stat_desc);

// SAFETY: The pointers in it lead to constants.
unsafe impl Sync for CounterName {}

impl CounterName {
    /// From a C string constant.
    pub const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: name.to_bytes_with_nul().as_ptr(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}

type Dev<D> = Object<bindings::ib_device, <D as Driver>::Device>;
type Context = Object<bindings::ib_ucontext, ()>;
type Pd<D> = Object<bindings::ib_pd, <D as Driver>::Pd>;
type Ah<D> = Object<bindings::ib_ah, <D as Driver>::Ah>;
type Cq<D> = Object<bindings::ib_cq, <D as Driver>::Cq>;
type Qp<D> = Object<bindings::ib_qp, <D as Driver>::Qp>;
type Mr<D> = Object<bindings::ib_mr, <D as Driver>::Mr>;

fn errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// The operations of a driver.
///
/// Every function here is only for ib_core, which calls it as
/// [`ib_verbs.h`](srctree/include/rdma/ib_verbs.h) says, with objects of a device whose table this
/// is: live, of the sizes that the table declares, and complete as [`Object`] describes. That is
/// the safety requirement of each and the reason why each `unsafe` block below is sound.
pub(super) struct Table<D: Driver>(core::marker::PhantomData<D>);

// The requirement of all of them is that of the type, above.
#[expect(clippy::missing_safety_doc)]
impl<D: Driver> Table<D> {
    /// The table. `ib_set_device_ops` copies it.
    pub(super) fn ops(module: *mut bindings::module) -> bindings::ib_device_ops {
        let mut ops = bindings::ib_device_ops {
            owner: module,
            driver_id: D::ID,
            uverbs_abi_ver: D::ABI_VERSION,
            device_group: core::ptr::addr_of!(bindings::ferroce_device_group),
            post_send: Some(Self::post_send),
            post_recv: Some(Self::post_recv),
            query_device: Some(Self::query_device),
            query_port: Some(Self::query_port),
            get_port_immutable: Some(Self::get_port_immutable),
            get_link_layer: Some(Self::get_link_layer),
            query_pkey: Some(Self::query_pkey),
            alloc_ucontext: Some(Self::alloc_ucontext),
            dealloc_ucontext: Some(Self::dealloc_ucontext),
            disassociate_ucontext: Some(Self::disassociate_ucontext),
            mmap: Some(Self::mmap),
            mmap_free: Some(Self::mmap_free),
            alloc_pd: Some(Self::alloc_pd),
            dealloc_pd: Some(Self::dealloc_pd),
            create_user_ah: Some(Self::create_ah),
            destroy_ah: Some(Self::destroy_ah),
            create_cq: Some(Self::create_cq),
            destroy_cq: Some(Self::destroy_cq),
            create_qp: Some(Self::create_qp),
            modify_qp: Some(Self::modify_qp),
            query_qp: Some(Self::query_qp),
            destroy_qp: Some(Self::destroy_qp),
            reg_user_mr: Some(Self::reg_user_mr),
            dereg_mr: Some(Self::dereg_mr),
            alloc_hw_port_stats: Some(Self::alloc_hw_port_stats),
            get_hw_stats: Some(Self::get_hw_stats),
            dealloc_driver: Some(Self::dealloc_driver),
            size_ib_ucontext: Context::SIZE,
            size_ib_pd: Pd::<D>::SIZE,
            size_ib_ah: Ah::<D>::SIZE,
            size_ib_cq: Cq::<D>::SIZE,
            size_ib_qp: Qp::<D>::SIZE,
            ..pin_init::zeroed()
        };
        ops.set_uverbs_robust_udata(1);
        ops
    }

    unsafe fn device<'a>(device: *const bindings::ib_device) -> &'a D::Device {
        // SAFETY: See `Table`.
        unsafe { Dev::<D>::private(device) }
    }

    unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        unsafe {
            errno(
                udata::none(udata).map(|()| D::query_device(Self::device(device)).fill(&mut *attr)),
            )
        }
    }

    unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        // SAFETY: See `Table`.
        unsafe { D::query_port(Self::device(device)).fill(device, port, &mut *attr) };
        0
    }

    unsafe extern "C" fn get_port_immutable(
        device: *mut bindings::ib_device,
        port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        // SAFETY: See `Table`.
        unsafe {
            let mut attr: bindings::ib_port_attr = pin_init::zeroed();
            Self::query_port(device, port, &mut attr);
            (*immutable).core_cap_flags = bindings::FERROCE_PORT_CAPABILITIES;
            (*immutable).gid_tbl_len = attr.gid_tbl_len;
            (*immutable).pkey_tbl_len = c_int::from(attr.pkey_tbl_len);
        }
        0
    }

    unsafe extern "C" fn get_link_layer(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
    }

    unsafe extern "C" fn query_pkey(
        _device: *mut bindings::ib_device,
        _port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        if index != 0 {
            return EINVAL.to_errno();
        }
        // SAFETY: See `Table`.
        unsafe { *pkey = super::limits::DEFAULT_PKEY };
        0
    }

    unsafe extern "C" fn alloc_ucontext(
        context: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        errno(unsafe {
            Udata::from_raw(udata)
                .and_then(|udata| D::alloc_context(Self::device((*context).device), &udata))
        })
    }

    unsafe extern "C" fn dealloc_ucontext(_context: *mut bindings::ib_ucontext) {}

    /// Rings stay mapped until the process unmaps them: their pages are counted, and a ring whose
    /// queue is gone is only memory. So there is nothing to take away.
    unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}

    unsafe extern "C" fn mmap(
        context: *mut bindings::ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: See `Table`.
        errno(unsafe { Mapping::mmap(context, vma) })
    }

    unsafe extern "C" fn mmap_free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: See `Table`.
        unsafe { Mapping::free(entry) }
    }

    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        errno(unsafe {
            udata::none(udata).and_then(|()| {
                Pd::<D>::init(pd, D::alloc_pd(Self::device((*pd).device))?);
                Ok(())
            })
        })
    }

    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        drop(unsafe { Pd::<D>::take(pd) });
        0
    }

    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        errno(unsafe {
            udata::none(udata).and_then(|()| {
                let path = Path::from_raw(&*(*attr).ah_attr)?;
                Ah::<D>::init(ah, D::create_ah(Self::device((*ah).device), path)?);
                Ok(())
            })
        })
    }

    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: See `Table`.
        drop(unsafe { Ah::<D>::take(ah) });
        0
    }

    unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        // SAFETY: See `Table`. The udata is the first field of the bundle.
        errno(unsafe {
            if (*attr).flags != 0 {
                return EOPNOTSUPP().to_errno();
            }
            Udata::from_raw(attrs.cast()).and_then(|udata| {
                let (private, entries) = D::create_cq(
                    Self::device((*cq).device),
                    CqRef::from_raw(cq),
                    (*attr).cqe,
                    &udata,
                )?;
                (*cq).cqe = entries as c_int;
                Cq::<D>::init(cq, private);
                Ok(())
            })
        })
    }

    unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        D::destroy_cq(unsafe { Cq::<D>::take(cq) });
        0
    }

    unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`. The CQs and the PD outlive the QP.
        errno(unsafe {
            if (*attr).qp_type != bindings::ib_qp_type_IB_QPT_RC
                || (*attr).create_flags != 0
                || !(*attr).srq.is_null()
            {
                return EOPNOTSUPP().to_errno();
            }
            if (*attr).send_cq.is_null() || (*attr).recv_cq.is_null() {
                return EINVAL.to_errno();
            }
            Udata::from_raw(udata).and_then(|udata| {
                let init = Init {
                    qp: QpRef::from_raw(qp),
                    send_cq: Cq::<D>::private((*attr).send_cq),
                    recv_cq: Cq::<D>::private((*attr).recv_cq),
                    capacity: Capacity::from_raw(&(*attr).cap),
                    signal_all: (*attr).sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
                };
                let created = D::create_qp(
                    Self::device((*qp).device),
                    Pd::<D>::private((*qp).pd),
                    init,
                    &udata,
                )?;
                (*qp).qp_num = created.number;
                created.capacity.to_raw(&mut (*attr).cap);
                Qp::<D>::init(qp, created.qp);
                Ok(())
            })
        })
    }

    unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        errno(unsafe {
            udata::none(udata)
                .and_then(|()| Change::from_raw(&*attr, mask as u32))
                .and_then(|change| D::modify_qp(Qp::<D>::private(qp), change))
        })
    }

    unsafe extern "C" fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        // SAFETY: See `Table`.
        unsafe {
            let (state, draining, attributes, capacity, signal_all) =
                D::query_qp(Qp::<D>::private(qp));
            attributes.to_raw(state, draining, capacity, &mut *attr);
            *init = pin_init::zeroed();
            (*init).event_handler = (*qp).event_handler;
            (*init).qp_context = (*qp).qp_context;
            (*init).send_cq = (*qp).send_cq;
            (*init).recv_cq = (*qp).recv_cq;
            (*init).qp_type = (*qp).qp_type;
            (*init).sq_sig_type = if signal_all {
                bindings::ib_sig_type_IB_SIGNAL_ALL_WR
            } else {
                bindings::ib_sig_type_IB_SIGNAL_REQ_WR
            };
            capacity.to_raw(&mut (*init).cap);
        }
        0
    }

    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`.
        D::destroy_qp(unsafe { Qp::<D>::take(qp) });
        0
    }

    /// A process rings the doorbell with an empty list; its requests are in the ring.
    unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad_wr: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        if !wr.is_null() {
            // SAFETY: See `Table`.
            unsafe { *bad_wr = wr };
            return EINVAL.to_errno();
        }
        // SAFETY: See `Table`.
        errno(D::send_doorbell(unsafe { Qp::<D>::private(qp) }))
    }

    /// As `post_send`.
    unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad_wr: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        if !wr.is_null() {
            // SAFETY: See `Table`.
            unsafe { *bad_wr = wr };
            return EINVAL.to_errno();
        }
        // SAFETY: See `Table`.
        errno(D::recv_doorbell(unsafe { Qp::<D>::private(qp) }))
    }

    unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        len: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        // SAFETY: See `Table`.
        let result = unsafe {
            udata::none(udata).and_then(|()| {
                if !dmah.is_null() {
                    return Err(EOPNOTSUPP());
                }
                let mut mr = KBox::<Mr<D>>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
                let core = mr.as_mut_ptr().cast::<bindings::ib_mr>();
                let (private, key) = D::reg_user_mr(
                    Self::device((*pd).device),
                    PdRef::from_raw(pd),
                    Pd::<D>::private(pd),
                    start,
                    len,
                    iova,
                    Access(access as u32),
                )?;
                Mr::<D>::init(core, private);
                (*core).lkey = key;
                (*core).rkey = key;
                (*core).iova = iova;
                (*core).length = len;
                Ok(KBox::into_raw(mr).cast::<bindings::ib_mr>())
            })
        };
        match result {
            Ok(mr) => mr,
            Err(e) => e.to_ptr(),
        }
    }

    unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: See `Table`. The memory is from `reg_user_mr`, and ours to free.
        unsafe {
            D::dereg_mr(Mr::<D>::take(mr));
            drop(KBox::from_raw(mr.cast::<core::mem::MaybeUninit<Mr<D>>>()));
        }
        0
    }

    unsafe extern "C" fn alloc_hw_port_stats(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        // SAFETY: The names are constants; `CounterName` is a transparent `rdma_stat_desc`.
        unsafe {
            bindings::rdma_alloc_hw_stats_struct(
                D::COUNTERS.as_ptr().cast::<bindings::rdma_stat_desc>(),
                D::COUNTERS.len() as c_int,
                bindings::FERROCE_STATS_LIFESPAN_MS as usize,
            )
        }
    }

    unsafe extern "C" fn get_hw_stats(
        device: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        _port: u32,
        _index: c_int,
    ) -> c_int {
        // SAFETY: See `Table`. The array was made with one value for each name, and ib_core
        // serialises the calls.
        let values = unsafe {
            core::slice::from_raw_parts_mut((*stats).value.as_mut_ptr(), D::COUNTERS.len())
        };
        // SAFETY: See `Table`.
        D::counters(unsafe { Self::device(device) }, values);
        D::COUNTERS.len() as c_int
    }

    unsafe extern "C" fn dealloc_driver(device: *mut bindings::ib_device) {
        // SAFETY: See `Table`: this is the last call for the device.
        drop(unsafe { Dev::<D>::take(device) });
    }
}
