"""The check of machine code finds what it should: good samples pass, each damaged one fails."""

import importlib.util
from pathlib import Path

import pytest
from cuda_rules import check_all, check_arithmetic
from cuda_sass import Kernel, read_kernels, read_ptx

HERE = Path(__file__).resolve().parent
UNIFORM = "OneLine<Uniform<float>>"
NORMAL = "OneLine<Normal<float>>"


def sass(*lines: str) -> str:
    """As cuobjdump prints it."""
    text = "".join(
        f"        /*{16 * i:04x}*/        {line} ;   /* 0x0000000000007918 */\n"
        "                                         /* 0x000fe20000000f00 */\n"
        for i, line in enumerate(lines)
    )
    return f'\t\tFunction : k\n\t.headerflags\t@"EF_CUDA_SM90"\n{text}\t\t..........\n'


def uniform_lines(each: int = 20) -> list[str]:
    """A loop of two Philox blocks and two stores."""
    wide = ["IMAD.WIDE.U32 R12, R12, -0x2daee0ad, RZ", "IMAD.WIDE.U32 R10, R12, -0x326172a9, RZ"]
    return [
        "S2R R0, SR_TID.X",
        *(wide * each),
        "FMUL R4, R4, 5.9604644775390625e-08",
        "STG.E.EF.128 desc[UR4][R2.64], R4",
        "STG.E.EF.128 desc[UR4][R2.64+0x1000], R8",
        "@!P0 BRA 0x10",
        "EXIT",
    ]


def ptx(*lines: str) -> str:
    return (
        ".visible .entry k(\n.param .b8 x[8]\n)\n{\n" + "".join(f"\t{x};\n" for x in lines) + "}\n"
    )


def wrong(name: str, lines: list[str], arithmetic: str, registers: int = 32, stack: int = 0):
    usage = (
        f"Resource usage:\n Function k:\n  REG:{registers} STACK:{stack} SHARED:0 LOCAL:0 "
        "CONSTANT[0]:616 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    )
    kernel = read_kernels(sass(*lines), usage)["k"]._replace(name=name)
    return check_all(kernel, read_ptx(arithmetic)["k"])


MULTIPLY = ptx("mul.rn.f32 \t%f2, %f1, 0f33800000")


def test_a_good_kernel_passes():
    assert wrong(UNIFORM, uniform_lines(), MULTIPLY) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda x: ["STL [R1], R0", *x], "local memory"),
        (lambda x: [*x[:5], "LDL.64 R2, [R1]", *x[5:]], "local memory"),
        (lambda x: [i.replace(".128", ".64") for i in x], "0 stores of 16 bytes"),
        (lambda x: [i.replace(".EF", "") for i in x], "0 stores of 16 bytes"),
        (lambda x: [*x[:9], "STG.E.EF desc[UR4][R2.64], R9", *x[9:]], "a narrow store"),
        (lambda x: [*x[:9], "FFMA R1, R2, R3, R4", *x[9:]], "1 FFMA, where"),
        (lambda x: [*x[:9], "DFMA R1, R2, R3, R4", *x[9:]], "1 DFMA"),
        (lambda x: [*x[:9], "HFMA2 R1, R2, R3, R4", *x[9:]], "half precision"),
        (lambda x: [*x[:9], *["IMAD.WIDE R1, R2, R3, R4"] * 5, *x[9:]], "45 wide multiplies"),
        (lambda x: [i.replace("-0x2daee0ad", "R9") for i in x], "10 products a Philox block"),
        (lambda x: [i.replace("BRA", "NOP") for i in x], "0 products a Philox block"),
    ],
)
def test_a_damaged_kernel_fails(change, problem):
    found = wrong(UNIFORM, change(uniform_lines()), MULTIPLY)
    assert any(problem in text for text in found), found


def digest_lines(each: int = 7) -> list[str]:
    """A loop that reads four groups and multiplies seven rounds of each."""
    wide = ["IMAD.WIDE.U32 R12, R12, -0x2daee0ad, RZ", "IMAD.WIDE.U32 R10, R12, -0x326172a9, RZ"]
    loads = [f"LDG.E.EF.128 R{16 + 4 * k}, desc[UR6][R54.64+0x{k}000]" for k in range(4)]
    return ["S2R R0, SR_TID.X", *loads, *(wide * (4 * each)), "@!P0 BRA 0x10", "EXIT"]


NO_REALS = ptx("mul.lo.s32 \t%r2, %r1, 3")


def test_a_good_reading_kernel_passes():
    assert wrong("DigestTiles", digest_lines(), NO_REALS, registers=80) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda x: [i.replace(".128", ".64") for i in x], "0 loads of 16 bytes"),
        (lambda x: [i.replace(".EF", "") for i in x], "0 loads of 16 bytes"),
        (lambda x: [*x[:9], "LDG.E.EF.U8 R9, desc[UR4][R2.64]", *x[9:]], "another access"),
        (lambda x: [*x[:9], "ATOMG.E.ADD.64 PT, R2, [R4.64], R8", *x[9:]], "another access"),
        (lambda x: [i.replace("-0x2daee0ad", "R9") for i in x], "7 products a group, not 14"),
        (lambda x: [*x[:9], *["IMAD.WIDE R1, R2, R3, R4"] * 5, *x[9:]], "of 61 in all"),
        (lambda x: [*x[:9], "STL [R1], R0", *x[9:]], "local memory"),
    ],
)
def test_a_damaged_reading_kernel_fails(change, problem):
    found = wrong("DigestTiles", change(digest_lines()), NO_REALS, registers=80)
    assert any(problem in text for text in found), found
    assert wrong("DigestTiles", digest_lines(10), NO_REALS, registers=80) != []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda x: x, None),
        (lambda x: [i.replace(".128", ".64") for i in x], "no loads of 16 bytes"),
        (lambda x: [x[0], "RED.E.ADD.64.STRONG.GPU desc[UR4][R2.64], R8", *x[1:]], "writes"),
        (lambda x: [x[0], *["IADD3 R1, R1, R2, RZ"] * 900, *x[1:]], "more than 860"),
    ],
)
def test_an_adding_kernel(change, problem):
    lines = ["LDG.E.EF.128 R4, desc[UR6][R16.64]", "IADD3 R1, R1, R4, RZ", "@!P0 BRA 0x0"]
    found = wrong("ExactTiles<float, (Terms)1>", change(lines), NO_REALS)
    assert [problem in text for text in found] == ([True] if problem else []), found


def test_registers_and_frames():
    assert wrong(UNIFORM, uniform_lines(), MULTIPLY, registers=33) == ["33 registers, more than 32"]
    assert wrong(NORMAL, uniform_lines(), MULTIPLY, registers=40) == []
    assert "frame of 8 bytes" in wrong(UNIFORM, uniform_lines(), MULTIPLY, stack=8)[0]


def test_unknown_kernels_fail():
    found = wrong("Another<float>", uniform_lines(), MULTIPLY)
    assert found == ["no limit of registers is known for it", "its work is not known"]


@pytest.mark.parametrize(
    "line",
    [
        "mul.f32 \t%f2, %f1, %f3",
        "add.f32 \t%f2, %f1, %f3",
        "@%p1 add.ftz.f32 \t%f2, %f1, %f3",
        "sub.f64 \t%fd2, %fd1, %fd3",
        "mul.rn.ftz.f32 \t%f2, %f1, %f3",
        "sqrt.approx.f32 \t%f2, %f1",
        "{{sin.approx.f32 \t%f2, %f1;}}",
        "div.full.f32 \t%f2, %f1, %f3",
        "fma.rn.f32 \t%f2, %f1, %f3, %f4",
        "fma.rn.f64 \t%fd2, %fd1, %fd3, %fd4",
        "rsqrt.approx.ftz.f32 \t%f2, %f1",  # without the steps that correct it
    ],
)
def test_inexact_arithmetic_fails(line):
    assert wrong(NORMAL, uniform_lines(), ptx(line)) != []


@pytest.fixture(scope="module")
def cuda_check():
    """(the program of this folder as a module, the environment with its tools)"""
    spec = importlib.util.spec_from_file_location("cuda_check_main", HERE / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    try:
        return main, main.tools()
    except SystemExit as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.parametrize("flag", [(), ("-fmad=false",)])
def test_products_may_be_fused_without_the_flag(tmp_path, cuda_check, flag):
    main, environment = cuda_check
    flags = [word for word in main.NVCC if word != "-fmad=false"]
    (source,) = (path for path in main.SOURCES if path.stem == "dropout")
    main.run(environment, *flags, *flag, "-arch=sm_100", "-ptx", source, "-o", tmp_path / "ptx")
    found = [
        problem
        for ptx in read_ptx((tmp_path / "ptx").read_text()).values()
        for problem in check_arithmetic(Kernel("", 0, 0, ()), ptx)
    ]
    assert any("mul.f32: reals without a rounding mode" in text for text in found) == (not flag)
