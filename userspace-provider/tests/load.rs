// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Loads the shared object as libibverbs does: into a pretended libibverbs of each ABI whose
//! headers are there, where a C program drives every verb, and into ones that it must refuse.

#[path = "common/sources.rs"]
mod sources;

use sources::{run, scratch, sources};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
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

/// The file of a program that is compiled, and the others: a folder has its `main.c` and its parts.
fn parts_of(program: &Path) -> (PathBuf, Vec<String>) {
    if program.is_file() {
        return (program.into(), Vec::new());
    }
    let main = program.join("main.c");
    let files = fs::read_dir(program).expect("the program is there");
    let paths = files.map(|file| file.expect("the folder can be read").path());
    let parts =
        paths.filter(|path| path.extension().is_some_and(|end| end == "c") && *path != main);
    let named = |path: PathBuf| path.to_str().expect("the folder has a plain name").into();
    (main.clone(), parts.map(named).collect())
}

/// The versions of the symbols, as libibverbs has them.
fn version_script(folder: &Path, abi: u32) -> String {
    let script = folder.join("versions");
    let text = format!(
        "IBVERBS_1.6 {{ global: ibv_qp_to_qp_ex; }};\n\
         IBVERBS_1.14 {{ global: ibv_query_qp_data_in_order; }} IBVERBS_1.6;\n\
         IBVERBS_PRIVATE_{abi} {{\n\
         global: __verbs_log; verbs_*; _verbs_*; ibv_cmd_*;\n\
         }} IBVERBS_1.14;\n"
    );
    fs::write(&script, text).expect("the folder is writable");
    format!("-Wl,--version-script={}", script.display())
}

/// Runs a C program with the provider in a pretended libibverbs made of `source`'s headers.
fn run_mock(name: &str, source: &sources::Source, program: &str, flags: &[&str]) -> String {
    let folder = scratch(&format!("{name}-{}", source.release));
    let script = version_script(&folder, source.abi);
    let mut library_flags = vec!["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", &script];
    library_flags.extend(flags);
    let library = source.compile(
        &folder,
        "libibverbs.so.1",
        &mock("libibverbs.c"),
        &library_flags,
    );
    let library = library.to_str().expect("the folder has a plain name");
    let (main, parts) = parts_of(&mock(program));
    let mut program_flags = vec!["-pthread", library];
    program_flags.extend(parts.iter().map(String::as_str));
    let program = source.compile(&folder, "program", &main, &program_flags);
    let output = run(Command::new(program)
        .arg(provider())
        .env("LD_LIBRARY_PATH", &folder));
    let _ = fs::remove_dir_all(folder);
    output
}

#[test]
fn every_verb_works_in_every_abi() {
    for source in sources() {
        let output = run_mock("verbs", &source, "scenario", &[]);
        assert_eq!(output, "ok\n", "rdma-core {}", source.release);
    }
}

/// rdma-core 36 to 43 and 44 have a shorter `struct verbs_qp` than later ones of the same ABI.
#[test]
fn every_verb_works_with_older_forms_of_abi_34() {
    let newest = |source: &&sources::Source| source.abi == 34 && !source.older();
    for source in sources().iter().filter(newest) {
        for at in [344, 352] {
            let flag = format!("-DQP_COMP_MASK={at}");
            let output = run_mock(&format!("older-{at}"), source, "scenario", &[&flag]);
            assert_eq!(output, "ok\n", "comp_mask at {at}");
        }
    }
}

/// A `struct verbs_context` of another length has other operations: devices cannot be opened.
#[test]
fn another_context_is_refused_and_nothing_is_written_over() {
    for source in sources() {
        let output = run_mock("context", &source, "context.c", &["-DEXTRA_CONTEXT=48"]);
        assert_eq!(output, "refused\n", "rdma-core {}", source.release);
    }
}

/// Loads the provider with a libibverbs made of `source`, in a program that keeps it to itself.
fn load_with(name: &str, abi: u32, source: &str) -> Output {
    load_with_stderr(name, abi, source, Stdio::piped())
}

/// The same, with something else for stderr.
fn load_with_stderr(name: &str, abi: u32, source: &str, stderr: Stdio) -> Output {
    let program = "#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(int argc, char **argv)\n{\n\
        \tif (!dlopen(\"libibverbs.so.1\", RTLD_NOW) || !dlopen(argv[1], RTLD_NOW)) {\n\
        \t\tputs(dlerror());\n\t\treturn 1;\n\t}\n\tputs(\"loaded\");\n\treturn 0;\n}\n";
    load_in(name, abi, &[("libibverbs.so.1", source)], program, stderr)
}

/// Runs a program with the provider's file as its argument, where these libraries are found.
fn load_in(
    name: &str,
    abi: u32,
    libraries: &[(&str, &str)],
    program: &str,
    stderr: Stdio,
) -> Output {
    let folder = scratch(name);
    let script = version_script(&folder, abi);
    let compile = |output: &str, source: &str, flags: &[&str]| {
        let file = folder.join(format!("{output}.c"));
        fs::write(&file, source).expect("the folder is writable");
        run(Command::new("cc")
            .arg("-o")
            .arg(folder.join(output))
            .arg(file)
            .args(flags));
    };
    for (library, source) in libraries {
        let soname = format!("-Wl,-soname,{library}");
        compile(library, source, &["-shared", "-fPIC", &soname, &script]);
    }
    compile("program", program, &[]);
    let output = Command::new(folder.join("program"))
        .arg(provider())
        .env("LD_LIBRARY_PATH", &folder)
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .and_then(Child::wait_with_output)
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
    assert_refused(&load_with("unknown", 99, &source), "private ABI 99");
}

#[test]
fn a_library_without_private_abi_is_refused() {
    assert_refused(&load_with("none", 99, "int none;\n"), "no libibverbs");
}

#[test]
fn an_early_form_of_abi_34_is_refused() {
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_34");
    assert_refused(&load_with("early", 34, &source), "older than rdma-core 36");
}

#[test]
fn a_missing_function_is_named() {
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_65")
        + "int ibv_query_qp_data_in_order(void) { return 0; }\n\
           void *ibv_qp_to_qp_ex(char *qp) { return qp[360] & 2 ? qp : 0; }\n";
    assert_refused(
        &load_with("missing", 65, &source),
        "_verbs_init_and_alloc_context",
    );
}

#[test]
fn an_unknown_queue_pair_is_refused() {
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_34")
        + "int ibv_query_qp_data_in_order(void) { return 0; }\n\
           void *ibv_qp_to_qp_ex(char *qp) { return qp[368] & 2 ? qp : 0; }\n";
    assert_refused(&load_with("qp", 34, &source), "unknown struct verbs_qp");
}

/// A wheel has a libibverbs under a name of its own, beside the system's, on which providers
/// depend. The one that loads the provider is served; what it lacks tells which was asked.
#[test]
fn the_library_that_loads_the_provider_is_the_one_that_it_serves() {
    let bundled = "#include <dlfcn.h>\n\
        int ibv_query_qp_data_in_order(void) { return 0; }\n\
        void *ibv_qp_to_qp_ex(char *qp) { return qp[360] & 2 ? qp : 0; }\n\
        void *verbs_load(const char *provider) { return dlopen(provider, RTLD_NOW); }\n"
        .to_string()
        + &UNWANTED.replace("FUNCTION", "verbs_register_driver_34");
    let early = UNWANTED.replace("FUNCTION", "verbs_register_driver_34");
    let program = "#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(int argc, char **argv)\n{\n\
        \tvoid *bundled = dlopen(\"libibverbs-1de1263b.so.1.14\", RTLD_NOW);\n\
        \tvoid *(*load)(const char *) = dlsym(bundled, \"verbs_load\");\n\n\
        \tputs(load(argv[1]) ? \"loaded\" : dlerror());\n\treturn 0;\n}\n";
    let libraries = [
        ("libibverbs.so.1", early.as_str()),
        ("libibverbs-1de1263b.so.1.14", &bundled),
    ];
    let output = load_in("bundled", 34, &libraries, program, Stdio::piped());
    assert_refused(&output, "has no _verbs_init_and_alloc_context");
}

/// The private functions are those of libibverbs, not what another library calls the same.
#[test]
fn a_symbol_without_the_version_is_not_libibverbs() {
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_34");
    // The script gives the symbol the version of another ABI.
    assert_refused(&load_with("version", 65, &source), "private ABI 34");
}

/// What cannot be said is not said: the program lives on.
#[test]
fn a_stderr_that_cannot_be_written_to_does_no_harm() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let source = UNWANTED.replace("FUNCTION", "verbs_register_driver_99");
    let stderr = full.expect("there is /dev/full").into();
    let output = load_with_stderr("stderr", 99, &source, stderr);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"loaded\n");
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
