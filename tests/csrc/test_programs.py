"""The C++ core and kernels without torch: known answers on every path, also under sanitizers."""

import importlib.util
import re
import shutil
import sys

import pytest
from native_programs import (
    CUDA,
    FLAGS,
    KERNELS,
    OPTIMIZE,
    PROGRAMS,
    SHIM,
    STRICT,
    build,
    compile_with,
    run,
)

EACH = [pytest.param(p, how, id=f"{p.name}-{how}") for p in PROGRAMS for how in p.builds]
BY_NAME = {program.name: program for program in PROGRAMS}


@pytest.mark.parametrize(("program", "how"), EACH)
def test_program_passes(program, how, tmp_path):
    built = build(tmp_path, FLAGS[how], program.sources, program.kernels)
    program.assert_passes(run(built, *program.paths))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.damage], ids=lambda p: p.name)
def test_program_fails_on_a_wrong_row(program, tmp_path):
    built = build(tmp_path, FLAGS[program.builds[0]], program.sources, program.kernels)
    for kind in program.damage:
        row = [line for line in program.rows() if line.startswith(kind + " ")][-1]
        wrong = row[:-1] + ("0" if row[-1] != "0" else "1")
        for text in (wrong, row.rsplit(" ", 1)[0], "another 1 2"):
            file = tmp_path / "rows.txt"
            file.write_text(text + "\n", "utf-8")
            done = run(built, file)
            assert done.returncode == 1, text[:100]


def test_program_starts_on_the_path_of_the_environment(tmp_path):
    core = BY_NAME["core"]
    built = build(tmp_path, OPTIMIZE, core.sources)
    fastest = run(built, *core.paths, FASTSEED_SIMD="").stdout
    paths, chosen = fastest.split(" on: ")[1].strip().split("; chosen: ")
    assert chosen == paths.split()[-1] and "portable" in paths.split()
    for name in paths.split():
        done = run(built, *core.paths, FASTSEED_SIMD=name)
        core.assert_passes(done)
        assert done.stdout.strip().endswith(f"; chosen: {name}")
    done = run(built, *core.paths, FASTSEED_SIMD="sse9")
    assert done.returncode == 1
    assert "FASTSEED_SIMD must be one of portable" in done.stderr and "got sse9" in done.stderr


def test_digest_has_the_sums_of_the_core_on_every_path(tmp_path):
    from fastseed import build_info

    digest = BY_NAME["digest"]
    built = build(tmp_path, OPTIMIZE, digest.sources)
    for path in {"portable", *build_info().get("simd_paths", ())}:
        done = run(built, FASTSEED_SIMD=path)
        digest.assert_passes(done)
        assert done.stdout.endswith(f" on: {path}\n")


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("before + low < before ? 1 : 0", "0"),  # a carry that is lost
        ("(plan.tiles, at.block,", "(plan.tiles, at.block / 2,"),  # tiles that two blocks take
    ],
)
def test_a_wrong_kernel_is_noticed(tmp_path, change, to):
    main, kernel = BY_NAME["cuda-digest"].sources
    text = kernel.read_text("utf-8")
    assert change in text
    text = text.replace(change, to).replace('#include "', f'#include "{CUDA}/')
    (tmp_path / "wrong.cu").write_text(text, "utf-8")
    flags = ("-O0", "-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-Wno-error")
    program = tmp_path / "wrong"
    compile_with((*flags, *SHIM), "-x", "c++", main, tmp_path / "wrong.cu", "-o", program)
    assert run(program).returncode != 0


def test_draws_have_no_fused_multiply_add(tmp_path):
    disassembler = shutil.which("objdump")
    if disassembler is None:
        pytest.skip("there is no disassembler")
    built = build(tmp_path, OPTIMIZE, BY_NAME["draws"].sources)
    functions = run(disassembler, "-d", "--no-show-raw-insn", built).stdout.split("\n\n")
    # Exact sums use them: what they round is added too.
    code = "\n".join(f for f in functions if "add_in_two" not in f.partition(":\n")[0])
    assert re.search(r"\bv?mul[ps]s\b", code), "no multiplication was found either"
    assert not re.search(r"\bv?fn?m(add|sub)", code)


def arm_compiler() -> tuple[str, ...]:
    """A compiler for 64-bit Arm: GCC's, or the one that the package ziglang brings."""
    if (gcc := shutil.which("aarch64-linux-gnu-g++")) is not None:
        return (gcc,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-gnu")
    pytest.skip("there is neither aarch64-linux-gnu-g++ nor ziglang")


def test_kernels_compile_for_arm(tmp_path):
    for source in KERNELS:
        done = run(*arm_compiler(), *STRICT, "-O2", "-c", source, "-o", tmp_path / "kernel.o")
        assert done.returncode == 0, done.stderr
