// SPDX-License-Identifier: GPL-2.0

//! What a device says of itself: limits, ports and their attributes, counters (`rdma statistic`,
//! `hw_counters` in sysfs), the answers to MADs, its version; its destruction; and counters for
//! some queue pairs apart from the others (`rdma statistic qp`).

use crate::sys::bindings;
use crate::sys::ib::process::NoUdata;
use crate::sys::ib::{
    object,
    operations,
    Argument,
    IgnoredArgument,
    Reference,
    Unseen, //
};
use crate::sys::refusal::EOPNOTSUPP;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::ffi::c_uint;
use kernel::fmt::Write;
use kernel::prelude::*;
use kernel::str::Formatter;

/// Flags of a device (`enum ib_device_cap_flags`).
pub mod capability {
    use crate::sys::bindings;

    /// Sends RNR NAKs.
    pub const RNR_NAK: u64 = bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN as u64;
    /// Shared receive queues can be resized.
    pub const SRQ_RESIZE: u64 = bindings::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as u64;
    /// Reports port state changes.
    pub const PORT_EVENTS: u64 = bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT as u64;
    /// Its system image GUID means something.
    pub const SYSTEM_GUID: u64 = bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID as u64;
    /// Supports memory windows.
    pub const WINDOWS: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as u64;
    /// And those of type 2B.
    pub const WINDOWS_2B: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as u64;
    /// FLUSH makes what was written visible to all.
    pub const FLUSH_GLOBAL: u64 = bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL as u64;
    /// There is ATOMIC WRITE.
    pub const ATOMIC_WRITE: u64 = bindings::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE as u64;
    /// Supports FRMRs, LOCAL_INV and SEND_WITH_INV.
    pub const FAST_REGISTRATION: u64 =
        bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
    /// Lists of a fast registration may have gaps (among `kernel_capabilities`).
    pub const LISTS_WITH_GAPS: u64 = bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG as u64;
    /// `rdma link delete` may take it away (among `kernel_capabilities`).
    pub const USER_UNREGISTERS: u64 = bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG as u64;
}

/// Commands that ib_core offers only if a driver asks for them.
pub mod command {
    use crate::sys::bindings;

    /// The doorbell of send queues.
    pub const POST_SEND: u64 = 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND;
    /// The doorbell of receive queues.
    pub const POST_RECV: u64 = 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_RECV;
}

/// Protocols of a port (`core_cap_flags`).
pub mod protocol {
    use crate::sys::bindings;

    /// RoCEv2.
    pub const ROCE_V2: u32 = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP;
    /// Address handles are those of an Ethernet.
    pub const ETHERNET_ADDRESSES: u32 = bindings::RDMA_CORE_CAP_ETH_AH;
    /// It has a QP for management datagrams (QP 1).
    pub const MANAGEMENT: u32 = bindings::RDMA_CORE_CAP_IB_MAD;
    /// Connections are made by the communication manager of InfiniBand.
    pub const CONNECTIONS: u32 = bindings::RDMA_CORE_CAP_IB_CM;
    /// Its GIDs can be addresses of sockets.
    pub const NATIVE_ADDRESSES: u32 = bindings::RDMA_CORE_CAP_AF_IB;
}

/// Result of `query_device`: what is not set is 0, not supported.
pub type DeviceLimits = bindings::ib_device_attr;

/// Atomic operations are atomic against the processors too.
pub const GLOBAL_ATOMICS: c_uint = bindings::ib_atomic_cap_IB_ATOMIC_GLOB;

/// A limit in the type of its field, which is signed up to Linux 7.2 and unsigned from 7.3 on.
pub fn number<T: TryFrom<u32> + From<u8>>(limit: u32) -> T {
    T::try_from(limit.min(i32::MAX as u32)).unwrap_or(T::from(u8::MAX))
}

/// Constants of an Ethernet port.
pub struct PortConstants {
    /// See [`protocol`].
    pub protocols: u32,
    /// Entries of the GID table: ib_core fills it from the addresses of the netdev.
    pub gid_table_len: u16,
    /// The GIDs are IP addresses.
    pub ip_gids: bool,
    /// The partition keys.
    pub pkeys: &'static [u16],
    /// Virtual lanes.
    pub virtual_lanes: u8,
    /// Greatest path MTU ever, in bytes.
    pub max_mtu: u32,
    /// Bytes of the longest message.
    pub max_message: u32,
    /// Bytes of a management datagram.
    pub max_mad: u32,
}

/// Result of `query_port`, without the parts that ib_core reads from the netdev.
pub struct PortState {
    /// The netdev is up and has a carrier.
    pub active: bool,
    /// Greatest path MTU that the netdev can carry, in bytes.
    pub active_mtu: u32,
}

/// An MTU as `enum ib_mtu` has it: 256 is 1, 4096 is 5.
pub(super) fn mtu(bytes: u32) -> bindings::ib_mtu {
    bytes.trailing_zeros().wrapping_sub(7)
}

/// The same, backwards; `None` for what is no value of the enumeration.
pub(super) fn mtu_bytes(raw: bindings::ib_mtu) -> Option<u32> {
    matches!(
        raw,
        bindings::ib_mtu_IB_MTU_256..=bindings::ib_mtu_IB_MTU_4096
    )
    .then(|| 128 << raw)
}

impl PortConstants {
    /// Entries of the table of partition keys.
    pub(super) fn pkey_table_len(&self) -> u16 {
        self.pkeys.len() as u16
    }

    pub(super) fn immutable(&self, immutable: &mut bindings::ib_port_immutable) {
        immutable.core_cap_flags = self.protocols;
        immutable.gid_tbl_len = self.gid_table_len.into();
        immutable.pkey_tbl_len = self.pkey_table_len().into();
        immutable.max_mad_size = self.max_mad;
    }

    /// All that is reported of the port in this state.
    pub(super) fn to_raw(&self, state: PortState, attr: &mut bindings::ib_port_attr) {
        // IsCommunicationManagementSupported (IBTA 14.2.5.6, PortInfo:CapabilityMask).
        const CONNECTION_MANAGEMENT: u32 = 1 << 16;
        // LinkUp and Disabled (IBTA 14.2.5.6, PortInfo:PortPhysicalState).
        const LINK_UP: u8 = 5;
        const DISABLED: u8 = 3;
        if state.active {
            attr.state = bindings::ib_port_state_IB_PORT_ACTIVE;
            attr.phys_state = LINK_UP;
        } else {
            attr.state = bindings::ib_port_state_IB_PORT_DOWN;
            attr.phys_state = DISABLED;
        }
        attr.max_mtu = mtu(self.max_mtu);
        attr.active_mtu = mtu(state.active_mtu);
        attr.phys_mtu = state.active_mtu;
        attr.gid_tbl_len = self.gid_table_len.into();
        attr.port_cap_flags = CONNECTION_MANAGEMENT;
        attr.max_vl_num = self.virtual_lanes;
        attr.set_ip_gids(self.ip_gids.into());
        attr.max_msg_sz = self.max_message;
        attr.pkey_tbl_len = self.pkey_table_len();
    }
}

/// A device with one port of a driver. Dropping it destroys it: all its objects are gone then.
pub trait RdmaDevice: Send + Sync + 'static {
    /// The port.
    const PORT: PortConstants;
    /// Names of the port's counters, in the order of [`RdmaDevice::counters`].
    const COUNTERS: &'static [CounterName];
    /// For how long ib_core may show the same values, in milliseconds.
    const COUNTERS_LIFESPAN_MS: u32;
    /// Version of the driver: major, minor, patch.
    const VERSION: [u16; 3];

    /// Fills in the limits of the device.
    fn limits(&self, attr: &mut DeviceLimits);
    /// Whether the netdev has left, and no event of it can have found the device since it was made
    /// or moved to another network namespace. If so, the device leaves next. May sleep.
    fn has_lost_netdev(&self) -> bool;
    /// The state of the port.
    fn port_state(&self) -> PortState;
    /// Fills the counters of the port, without those of queue pairs that are counted apart.
    fn counters(&self, values: &mut [u64]);
    /// What the port answers to a management datagram itself, if it does. May sleep.
    fn management(&self, request: &Mad) -> Option<Mad>;
}

type Live<'a, D> = object::Live<'a, bindings::ib_device, D>;
type Gone<'a, D> = object::Gone<'a, bindings::ib_device, D>;

impl<D: RdmaDevice> Live<'_, D> {
    fn query_port(&self, port: u32, attr: &mut bindings::ib_port_attr) {
        // The slowest there is, as ib_core takes it for a netdev whose speed is unknown.
        attr.active_speed = bindings::ib_port_speed_IB_SPEED_SDR as u16;
        attr.active_width = bindings::ib_port_width_IB_WIDTH_1X as u8;
        // It waits for the RTNL, still held by the code that has just set the netdev down, and the
        // port's event waits for the answer.
        if self.port_state().active {
            let device = self.reference().as_raw();
            // SAFETY: By the type invariant.
            unsafe {
                bindings::ferroce_port_speed(
                    device,
                    port,
                    &mut attr.active_speed,
                    &mut attr.active_width,
                )
            };
        }
        // As it is now: while that waited for the RTNL, the netdev may have been set down, and what
        // is answered here is what ib_core goes on to think of the port.
        D::PORT.to_raw(self.port_state(), attr);
    }
}

operations! {
    install<'a, D: RdmaDevice>

    query_device(
        device: Live<'a, D>,
        attr: &'a mut DeviceLimits,
        _udata: NoUdata,
    ) -> Result {
        device.limits(attr);
        Ok(())
    }

    /// As for all devices, the node can be described and nothing else changed.
    modify_device(
        device: Live<'a, D>,
        mask: c_int,
        modify: &'a mut bindings::ib_device_modify,
    ) -> Result {
        const DESCRIPTION: u32 = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC;
        if mask as u32 & !DESCRIPTION != 0 {
            return Err(EOPNOTSUPP());
        }
        if mask as u32 & DESCRIPTION != 0 {
            device.reference().describe_node(modify);
        }
        Ok(())
    }

    get_dev_fw_str(_device: Live<'a, D>, text: FirmwareText<'a>) -> Result<Unseen> {
        text.write(D::VERSION)?;
        Ok(Unseen)
    }

    process_mad(
        device: Live<'a, D>,
        _flags: c_int,
        _port: u32,
        _completion: IgnoredArgument<*const bindings::ib_wc>,
        _grh: IgnoredArgument<*const bindings::ib_grh>,
        question: Question<'a>,
        reply: MadReply<'a>,
        _length: IgnoredArgument<*mut usize>,
        _pkey_index: IgnoredArgument<*mut u16>,
    ) -> Result<c_int> {
        Ok(reply.give(device.management(question.0)))
    }

    query_port(device: Live<'a, D>, port: u32, attr: &'a mut bindings::ib_port_attr) -> Result {
        device.query_port(port, attr);
        Ok(())
    }

    get_port_immutable(
        _device: Live<'a, D>,
        _port: u32,
        immutable: &'a mut bindings::ib_port_immutable,
    ) -> Result {
        D::PORT.immutable(immutable);
        Ok(())
    }

    /// From here on events find the device: it was registered, or is in another network namespace.
    enable_driver(device: Live<'a, D>) -> Result {
        if device.has_lost_netdev() {
            // SAFETY: It is registered: who calls has a reference.
            unsafe { bindings::ib_unregister_device_queued(device.reference().as_raw()) };
        }
        Ok(())
    }

    get_link_layer(_device: Live<'a, D>, _port: u32) -> Result<u32> {
        Ok(bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET)
    }

    query_pkey(_device: Live<'a, D>, _port: u32, index: u16, pkey: &'a mut u16) -> Result {
        *pkey = *D::PORT.pkeys.get(usize::from(index)).ok_or(EINVAL)?;
        Ok(())
    }

    alloc_hw_port_stats(
        _device: Live<'a, D>,
        _port: u32,
    ) -> Result<*mut bindings::rdma_hw_stats> {
        Ok(allocate(D::COUNTERS, D::COUNTERS_LIFESPAN_MS))
    }

    get_hw_stats(device: Live<'a, D>, values: Values<'a>, _port: u32, _index: c_int)
        -> Result<c_int>
    {
        Ok(values.fill(|values| device.counters(values)))
    }

    dealloc_driver(device: Gone<'a, D>) -> Result<Unseen> {
        device.destroy();
        Ok(Unseen)
    }
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

/// Allocates the values that go with the names; ib_core frees them.
pub(super) fn allocate(
    names: &'static [CounterName],
    lifespan_ms: u32,
) -> *mut bindings::rdma_hw_stats {
    // SAFETY: The names are constants; `CounterName` is a transparent `rdma_stat_desc`.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(
            names.as_ptr().cast::<bindings::rdma_stat_desc>(),
            names.len() as c_int,
            lifespan_ms as usize,
        )
    }
}

/// The values of counters.
///
/// # Invariants
///
/// It was allocated by [`allocate`], and nobody else uses it.
pub(super) struct Values<'a>(NonNull<bindings::rdma_hw_stats>, PhantomData<&'a mut ()>);

impl Argument for Values<'_> {
    type Raw = *mut bindings::rdma_hw_stats;

    unsafe fn from_raw(raw: *mut bindings::rdma_hw_stats) -> Result<Self> {
        // INVARIANT: By the requirement; ib_core serialises the calls.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?, PhantomData))
    }
}

impl Values<'_> {
    /// Lets `fill` fill them; returns how many there are.
    pub(super) fn fill(self, fill: impl FnOnce(&mut [u64])) -> c_int {
        // SAFETY: By the type invariant there are so many values behind it.
        let (values, count) = unsafe {
            let count = (*self.0.as_ptr()).num_counters;
            let values = (*self.0.as_ptr()).value.as_mut_ptr();
            (
                core::slice::from_raw_parts_mut(values, count as usize),
                count,
            )
        };
        fill(values);
        count
    }
}

/// A management datagram.
pub type Mad = [u8; 256];

/// A received MAD.
pub(super) struct Question<'a>(pub(super) &'a Mad);

impl Argument for Question<'_> {
    type Raw = *const bindings::ib_mad;

    unsafe fn from_raw(raw: *const bindings::ib_mad) -> Result<Self> {
        // SAFETY: By the requirement; a `struct ib_mad` has as many bytes, and any values.
        Ok(Self(unsafe { raw.cast::<Mad>().as_ref() }.ok_or(EINVAL)?))
    }
}

/// Buffer of the response.
pub(super) struct MadReply<'a>(&'a mut Mad);

impl Argument for MadReply<'_> {
    type Raw = *mut bindings::ib_mad;

    unsafe fn from_raw(raw: *mut bindings::ib_mad) -> Result<Self> {
        // SAFETY: As above; only the operation uses it meanwhile.
        Ok(Self(unsafe { raw.cast::<Mad>().as_mut() }.ok_or(EINVAL)?))
    }
}

impl MadReply<'_> {
    /// Answers so, or leaves it to others; returns what ib_core wants to know.
    pub(super) fn give(self, answer: Option<Mad>) -> c_int {
        let mut result = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS;
        if let Some(answer) = answer {
            *self.0 = answer;
            result |= bindings::ib_mad_result_IB_MAD_RESULT_REPLY;
        }
        result as c_int
    }
}

/// Buffer of the firmware version, as text.
pub(super) struct FirmwareText<'a>(&'a mut [c_char; LEN]);

/// Bytes of that text.
const LEN: usize = bindings::IB_FW_VERSION_NAME_MAX as usize;

impl Argument for FirmwareText<'_> {
    type Raw = *mut c_char;

    unsafe fn from_raw(raw: *mut c_char) -> Result<Self> {
        // SAFETY: By the requirement; all callers have so many bytes.
        let text = unsafe { raw.cast::<[c_char; LEN]>().as_mut() };
        Ok(Self(text.ok_or(EINVAL)?))
    }
}

impl FirmwareText<'_> {
    /// Writes major, minor and patch.
    pub(super) fn write(self, [major, minor, patch]: [u16; 3]) -> Result {
        let Some((end, text)) = self.0.split_last_mut() else {
            return Err(EINVAL);
        };
        let mut out = Formatter::new(text);
        write!(out, "{major}.{minor}.{patch}").map_err(|_| EINVAL)?;
        let written = out.bytes_written();
        if let Some(end) = text.get_mut(written) {
            *end = 0;
        }
        *end = 0;
        Ok(())
    }
}

impl Reference<'_, bindings::ib_device> {
    /// Sets the node description; a concurrent reader may see a mixture.
    pub(super) fn describe_node(self, modify: &mut bindings::ib_device_modify) {
        // A line that was written to the file in sysfs ends with its text.
        if let Some(end) = modify.node_desc.iter_mut().rfind(|byte| **byte != 0) {
            if *end == b'\n' {
                *end = 0;
            }
        }
        // SAFETY: By the type invariant.
        unsafe { (*self.as_raw()).node_desc = modify.node_desc };
    }
}

/// Counter sets of a driver. ib_core calls one method at a time.
pub trait CounterSet: Send + Sync + 'static {
    /// The device type.
    type Device: RdmaDevice;
    /// The queue pair type.
    type Qp: Send + Sync + 'static;

    /// A set that counts nothing. ib_core may forget it without dropping it as long as nothing was
    /// bound to it.
    fn new() -> Self;

    /// Counts `qp` here from now on. Returns the number of the set, which no other set of the
    /// device has. If the first one fails the set has nothing that would have to be dropped.
    fn bind(&self, device: &Self::Device, qp: &Self::Qp) -> Result<u32>;

    /// Counts `qp` with the others of the port again.
    fn unbind(device: &Self::Device, qp: &Self::Qp) -> Result;

    /// Fills the values, in the order of [`RdmaDevice::COUNTERS`].
    fn read(&self, values: &mut [u64]);
}

type NewSet<'a, S> = object::New<'a, bindings::rdma_counter, S, <S as CounterSet>::Device>;
type LiveSet<'a, S> = object::Live<'a, bindings::rdma_counter, S, <S as CounterSet>::Device>;
type GoneSet<'a, S> = object::Gone<'a, bindings::rdma_counter, S>;
type LiveQp<'a, S> =
    object::Live<'a, bindings::ib_qp, <S as CounterSet>::Qp, <S as CounterSet>::Device>;

impl<'a> Reference<'a, bindings::rdma_counter> {
    fn set_number(self, number: u32) {
        // SAFETY: By the type invariant; ib_core holds the lock of the counter.
        unsafe { (*self.as_raw()).id = number };
    }

    /// Its values.
    fn values(self) -> Result<Values<'a>> {
        // SAFETY: By the type invariant; what is there was allocated by `counter_alloc_stats`.
        unsafe { Values::from_raw((*self.as_raw()).stats) }
    }
}

impl Reference<'_, bindings::ib_qp> {
    fn set_counter(self, counter: *mut bindings::rdma_counter) {
        // SAFETY: By the type invariant. ib_core holds the lock of the counter, and leaves this
        // field to the driver; a reader without that sees the old value or the new one.
        unsafe { (&raw mut (*self.as_raw()).counter).write_volatile(counter) };
    }
}

operations! {
    install_counters<'a, S: CounterSet>

    counter_init(counter: NewSet<'a, S>) -> Result<Unseen> {
        counter.create(|_device, ()| Ok((S::new(), ())))?;
        Ok(Unseen)
    }

    counter_alloc_stats(_counter: LiveSet<'a, S>) -> Result<*mut bindings::rdma_hw_stats> {
        Ok(allocate(S::Device::COUNTERS, S::Device::COUNTERS_LIFESPAN_MS))
    }

    counter_bind_qp(counter: LiveSet<'a, S>, qp: LiveQp<'a, S>, _port: u32) -> Result {
        let number = counter.bind(counter.device()?, &qp)?;
        counter.reference().set_number(number);
        qp.reference().set_counter(counter.reference().as_raw());
        Ok(())
    }

    counter_unbind_qp(qp: LiveQp<'a, S>, _port: u32) -> Result {
        S::unbind(qp.device()?, &qp)?;
        qp.reference().set_counter(core::ptr::null_mut());
        Ok(())
    }

    counter_update_stats(counter: LiveSet<'a, S>) -> Result {
        let values = counter.reference().values()?;
        values.fill(|values| counter.read(values));
        Ok(())
    }

    counter_dealloc(counter: GoneSet<'a, S>) -> Result {
        counter.destroy();
        Ok(())
    }
}
