// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The unpacked rdma-core sources that the tests compare with, and C programs compiled against
//! them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// One release of rdma-core.
pub struct Source {
    /// The private ABI of its libibverbs.
    pub abi: u32,
    /// Its number, without what stands behind the point.
    pub release: u32,
    root: PathBuf,
}

/// Finds the sources of both releases: `FERROCE_RDMA_CORE_56` and `FERROCE_RDMA_CORE_65`, or
/// `rdma-core-56.1` and `rdma-core-65.0` in `FERROCE_CACHE`, or that in the user's cache folder.
///
/// A missing source fails the test, unless `FERROCE_ALLOW_MISSING_SOURCES` is set. More folders, of
/// any releases from 36 on, can be named in `FERROCE_RDMA_CORE_MORE`, with colons between them.
pub fn sources() -> Vec<Source> {
    let cache = env::var_os("FERROCE_CACHE").map(PathBuf::from).or_else(|| {
        let home = PathBuf::from(env::var_os("HOME")?);
        Some(home.join(".cache/ferroce"))
    });
    let releases = [
        ("FERROCE_RDMA_CORE_56", "rdma-core-56.1"),
        ("FERROCE_RDMA_CORE_65", "rdma-core-65.0"),
    ];
    let mut found = Vec::new();
    for (variable, folder) in releases {
        let root = env::var_os(variable)
            .map(PathBuf::from)
            .or_else(|| Some(cache.as_ref()?.join(folder)))
            .unwrap_or_else(|| folder.into());
        if root.join("libibverbs/driver.h").is_file() {
            found.push(Source::of(root));
        } else if env::var_os("FERROCE_ALLOW_MISSING_SOURCES").is_none() {
            panic!(
                "no rdma-core source in {}: unpack the source package there, or set {variable} \
                 (FERROCE_ALLOW_MISSING_SOURCES=1 leaves this comparison out)",
                root.display()
            );
        } else {
            eprintln!("left out: no rdma-core source in {}", root.display());
        }
    }
    let more = env::var_os("FERROCE_RDMA_CORE_MORE").unwrap_or_default();
    let folders = env::split_paths(&more).filter(|root| !root.as_os_str().is_empty());
    found.extend(folders.map(Source::of));
    found
}

impl Source {
    /// What an unpacked source package says of itself.
    fn of(root: PathBuf) -> Self {
        let text = std::fs::read_to_string(root.join("CMakeLists.txt"))
            .unwrap_or_else(|e| panic!("no rdma-core source in {}: {e}", root.display()));
        let number = |name: &str| {
            let (_, value) = text.split_once(&format!("set({name} \"")).expect(name);
            let digits = value.split(|c: char| !c.is_ascii_digit()).next();
            digits.and_then(|d| d.parse().ok()).expect(name)
        };
        Self {
            abi: number("IBVERBS_PABI_VERSION"),
            release: number("PACKAGE_VERSION"),
            root,
        }
    }

    /// FLUSH or ATOMIC WRITE have no names in it yet.
    pub fn older(&self) -> bool {
        self.release < 45
    }

    /// Compiles a C program or library against the headers of this release, into `folder`.
    pub fn compile(&self, folder: &Path, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
        let include = folder.join(format!("include-{}", self.abi));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/headers.sh");
        run(Command::new("sh").arg(script).arg(&self.root).arg(&include));
        let output = folder.join(name);
        run(Command::new("cc")
            .args(["-D_GNU_SOURCE", "-Wall", "-Werror", "-g"])
            .arg(format!("-DPABI={}", self.abi))
            .arg(format!("-DRELEASE={}", self.release))
            .arg("-isystem")
            .arg(&include)
            .arg("-o")
            .arg(&output)
            .arg(source)
            .args(flags));
        output
    }
}

/// Runs a command that must succeed; returns what it has written to stdout.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// An empty folder for a test.
pub fn scratch(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("ferroce-provider-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    folder
}
