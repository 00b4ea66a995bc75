// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Loads the shared object as libibverbs does: into a pretended libibverbs of either ABI, where a C
//! program drives every verb, and into ones that it must refuse.

#[path = "common/sources.rs"]
mod sources;

use sources::{run, scratch, sources};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The shared object that cargo has built for this test.
fn provider() -> PathBuf {
    let test = env::current_exe().expect("the test has a path");
    // Beside the test, or one folder up, depending on the release of cargo.
    test.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("libferroce.so"))
        .find(|path| path.is_file())
        .expect("cargo has built libferroce.so")
}

fn mock(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/mock")
        .join(name)
}

#[test]
fn every_verb_works_in_both_abis() {
    for source in sources() {
        let folder = scratch(&format!("verbs-{}", source.abi));
        let soname = "-Wl,-soname,libibverbs.so.1";
        source.compile(
            &folder,
            "libibverbs.so.1",
            &mock("libibverbs.c"),
            &["-shared", "-fPIC", soname],
        );
        let library = folder.join("libibverbs.so.1");
        let scenario = source.compile(
            &folder,
            "scenario",
            &mock("scenario.c"),
            &[
                "-pthread",
                library.to_str().expect("the folder has a plain name"),
            ],
        );
        let output = run(Command::new(scenario)
            .arg(provider())
            .env("LD_LIBRARY_PATH", &folder));
        assert_eq!(output, "ok\n", "private ABI {}", source.abi);
        let _ = fs::remove_dir_all(folder);
    }
}

/// Loads the provider with a libibverbs made of `source`, in a program that keeps it to itself.
fn load_with(name: &str, source: &str) -> Output {
    let folder = scratch(name);
    let compile = |output: &str, source: &str, flags: &[&str]| {
        let file = folder.join(format!("{output}.c"));
        fs::write(&file, source).expect("the folder is writable");
        run(Command::new("cc")
            .arg("-o")
            .arg(folder.join(output))
            .arg(file)
            .args(flags));
    };
    compile(
        "libibverbs.so.1",
        source,
        &["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1"],
    );
    let program = "#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(int argc, char **argv)\n{\n\
        \tif (!dlopen(\"libibverbs.so.1\", RTLD_NOW) || !dlopen(argv[1], RTLD_NOW)) {\n\
        \t\tputs(dlerror());\n\t\treturn 1;\n\t}\n\tputs(\"loaded\");\n\treturn 0;\n}\n";
    compile("program", program, &[]);
    let output = Command::new(folder.join("program"))
        .arg(provider())
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("the program runs");
    let _ = fs::remove_dir_all(folder);
    output
}

/// Asserts that the provider stays out, with exactly one line on stderr that has `reason` in it.
fn assert_refused(output: &Output, reason: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"loaded\n");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.starts_with("libferroce: ") && text.contains(reason),
        "{text}"
    );
}

const UNWANTED: &str = "#include <stdlib.h>\nvoid FUNCTION(const void *ops) { abort(); }\n";

#[test]
fn an_unknown_abi_is_refused_by_name() {
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_99");
    assert_refused(&load_with("unknown", &source), "private ABI 99");
}

#[test]
fn a_library_without_private_abi_is_refused() {
    assert_refused(&load_with("none", "int none;\n"), "no libibverbs");
}

#[test]
fn an_early_form_of_abi_34_is_refused() {
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_34");
    assert_refused(&load_with("early", &source), "older than rdma-core 36");
}

#[test]
fn a_missing_function_is_named() {
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_65")
        + "int ibv_query_qp_data_in_order(void) { return 0; }\n";
    assert_refused(
        &load_with("missing", &source),
        "_verbs_init_and_alloc_context",
    );
}

#[test]
fn it_imports_nothing_from_libibverbs_but_depends_on_it() {
    let so = provider();
    let dynamic = run(Command::new("readelf").arg("-d").arg(&so));
    assert!(dynamic.contains("[libibverbs.so.1]"), "{dynamic}");
    let symbols = run(Command::new("nm").arg("-D").arg(&so));
    let foreign: Vec<_> = symbols
        .lines()
        .filter(|line| line.contains("ibv_") || line.contains("verbs_"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    // Nor does it offer anything: providers in one process must not see each other.
    let offered = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&so));
    assert_eq!(offered.trim(), "");
}
