// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Makes the shared object depend on `libibverbs.so.1` without importing a symbol from it.
//!
//! The dependency puts libibverbs into the scope that `dlsym` searches even where an application
//! has loaded libibverbs privately (`RTLD_LOCAL`). An imported private symbol would carry the
//! version of one private ABI and shut out all others. The library linked against is an empty
//! stand-in with the right name, so that a build needs no libibverbs and cannot pick up a symbol.

use std::{env, fs, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let source = out.join("empty.c");
    fs::write(&source, "").expect("the build folder is writable");
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let status = Command::new(&linker)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libibverbs.so.1", "-o"])
        .arg(out.join("libibverbs.so"))
        .arg(&source)
        .status()
        .unwrap_or_else(|e| panic!("cannot run the linker {}: {e}", linker.to_string_lossy()));
    assert!(
        status.success(),
        "cannot link a stand-in for libibverbs.so.1"
    );
    println!("cargo::rustc-cdylib-link-arg=-L{}", out.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed");
    println!("cargo::rustc-cdylib-link-arg=-libverbs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--pop-state");
    // Function pointers are registered for the life of the process: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
