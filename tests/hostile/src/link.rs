// SPDX-License-Identifier: GPL-2.0

//! Whole Ethernet frames, out and in, by a packet socket. The only file with unsafe code.

use std::ffi::CString;
use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A packet socket on one net device.
pub struct Link {
    fd: OwnedFd,
}

/// `ETH_P_ALL` in network order, as the system calls want it.
const EVERY_PROTOCOL: u16 = (libc::ETH_P_ALL as u16).to_be();

impl Link {
    /// Opens it; it hears everything but what it sends itself.
    pub fn open(netdev: &str) -> Result<Self> {
        let name = CString::new(netdev)?;
        // SAFETY: The name ends with a zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: No pointers.
        let fd = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                i32::from(EVERY_PROTOCOL),
            )
        };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: It was opened just now, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let link = Self { fd };
        // SAFETY: An address of zeros is one.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = EVERY_PROTOCOL;
        address.sll_ifindex = index as i32;
        // SAFETY: The address is as long as is said.
        let bound = unsafe {
            libc::bind(
                link.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if bound != 0 {
            return Err(Error::last_os_error());
        }
        link.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        link.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20)?;
        Ok(link)
    }

    fn set(&self, level: i32, option: i32, value: i32) -> Result<()> {
        // SAFETY: The value is as long as is said.
        let done = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<i32>() as u32,
            )
        };
        if done != 0 {
            return Err(Error::last_os_error());
        }
        Ok(())
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        loop {
            // SAFETY: The slice is readable.
            let sent =
                unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent == frame.len() as isize {
                return Ok(());
            }
            let error = Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                _ => return Err(error),
            }
        }
    }

    /// The next frame that came, if one comes within `patience`.
    pub fn receive(&self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0; 1 << 16];
        loop {
            // SAFETY: The vector is writable.
            let got = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            if got >= 0 {
                frame.truncate(got as usize);
                return Ok(Some(frame));
            }
            let error = Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
                return Err(error);
            }
            let mut waiting = libc::pollfd {
                fd: self.fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: One structure, as is said.
            match unsafe { libc::poll(&mut waiting, 1, patience.as_millis() as i32) } {
                0 => return Ok(None),
                n if n < 0 => {
                    let error = Error::last_os_error();
                    if error.raw_os_error() != Some(libc::EINTR) {
                        return Err(error);
                    }
                }
                _ => (),
            }
        }
    }
}
