// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Which libibverbs has loaded the provider, where a process has more than one.
//!
//! A Python wheel brings a libibverbs of its own, under a name that no other has: what a provider
//! depends on, `libibverbs.so.1`, is then the system's, which knows nothing of the wheel's devices.
//! So the caller of `dlopen` is looked for on the stack.

use core::{
    ffi::{c_int, c_void, CStr},
    mem::zeroed,
    ptr,
};

/// More calls than lie between libibverbs and the constructor of what it loads.
const MOST_CALLS: usize = 64;

/// Where symbols are looked for.
#[derive(Clone, Copy)]
pub struct Scope(*mut c_void);

impl Scope {
    /// That of this shared object, to which `libibverbs.so.1` belongs.
    pub const OWN: Self = Self(libc::RTLD_DEFAULT);

    /// That of the library which has loaded us, if it has one of these symbols itself: name and
    /// version. To be asked by a constructor.
    pub fn of_loader(marks: &[(&CStr, &CStr)]) -> Option<Self> {
        let mut calls = [ptr::null_mut(); MOST_CALLS];
        // SAFETY: There is room for so many.
        let found = unsafe { libc::backtrace(calls.as_mut_ptr(), MOST_CALLS as c_int) };
        let calls = calls.iter().take(usize::try_from(found).ok()?);
        calls.into_iter().find_map(|call| {
            let library = object_of(*call)?;
            // SAFETY: The name is that of a loaded object; it is not loaded anew.
            let handle =
                unsafe { libc::dlopen(library.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if handle.is_null() {
                return None;
            }
            let scope = Self(handle);
            // What a library depends on is in its scope, too.
            let has = |(name, version): &(&CStr, &CStr)| {
                object_of(scope.symbol(name, version))
                    .is_some_and(|owner| owner.dli_fbase == library.dli_fbase)
            };
            // The handle is kept, for its functions are called as long as the process lives.
            marks.iter().any(has).then_some(scope)
        })
    }

    /// The address of a symbol of one version; null if there is none.
    pub fn symbol(self, name: &CStr, version: &CStr) -> *mut c_void {
        // SAFETY: Both are C strings; the scope is a handle, or stands for our own.
        unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) }
    }

    /// The same, of any version.
    pub fn any_symbol(self, name: &CStr) -> *mut c_void {
        // SAFETY: As above.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

/// The object that an address lies in.
fn object_of(address: *mut c_void) -> Option<libc::Dl_info> {
    // SAFETY: Zero is a value of each member.
    let mut info: libc::Dl_info = unsafe { zeroed() };
    // SAFETY: Any address may be asked for, and the structure is filled in.
    (unsafe { libc::dladdr(address, &mut info) } != 0 && !info.dli_fname.is_null()).then_some(info)
}
