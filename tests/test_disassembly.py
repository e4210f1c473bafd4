"""Many kernels disassembled at once: the same text as each by itself, whatever goes wrong."""

import subprocess
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
pytestmark = pytest.mark.skipif(
    not (TOOLS / "cuobjdump").exists(), reason="this Triton brings no CUDA tools"
)

PTX = """
.version 8.7
.target {target}
.address_size 64
.visible .entry {name}(.param .u64 out, .param .u32 n)
{{
.reg .b32 %r<9>;
.reg .b64 %rd<3>;
.reg .pred %p<2>;
.shared .align 4 .b8 scratch[{shared}];
ld.param.u64 %rd1, [out];
ld.param.u32 %r1, [n];
mov.u32 %r2, {seed};
again:
{body}
add.s32 %r1, %r1, -1;
setp.gt.s32 %p1, %r1, 0;
@%p1 bra again;
st.shared.u32 [scratch], %r2;
bar.sync 0;
ld.shared.u32 %r3, [scratch];
st.global.u32 [%rd1], %r3;
ret;
}}
"""


def cubin(folder: Path, name: str, seed: int, target: str = "sm_90") -> bytes:
    """Assemble a kernel with a loop, a branch, a barrier and shared memory."""
    body = "\n".join(f"mad.lo.s32 %r2, %r2, {seed + n}, %r1;" for n in range(seed))
    source, made = folder / f"{name}.ptx", folder / f"{name}.cubin"
    source.write_text(PTX.format(name=name, target=target, shared=4 * seed, seed=seed, body=body))
    ptxas = "ptxas-blackwell" if target >= "sm_100" and len(target) > 5 else "ptxas"
    command = [TOOLS / ptxas, f"--gpu-name={target}", source, "-o", made]
    subprocess.run(command, check=True, capture_output=True)
    return made.read_bytes()


def alone(cubins: list[bytes]) -> list[str]:
    from triton.tools.disasm import get_sass

    return [get_sass(one) for one in cubins]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_text_of_many_at_once_is_that_of_each_alone(tmp_path: Path, target: str) -> None:
    from collector import disassembly

    names = ["_first", "_second", "_third", "_first"]
    cubins = [cubin(tmp_path, name, seed, target) for seed, name in enumerate(names, start=2)]
    printed = disassembly.printed(disassembly.merged(cubins))
    assert disassembly.parsed(printed, names) == alone(cubins)
    assert len({*alone(cubins)}) == len(cubins)


def test_the_tool_runs_once_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collector import disassembly

    cubins = [cubin(tmp_path, f"_k{seed}", seed) for seed in (2, 3, 4)]
    expected, calls, run = alone(cubins), [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: calls.append(a) or run(*a, **k))
    monkeypatch.setattr(disassembly.disasm, "get_sass", lambda one: pytest.fail("one by one"))
    assert disassembly.disassembled(cubins) == expected and len(calls) == 1


@pytest.mark.parametrize("fault", ["two functions", "refused", "lost"])
def test_what_cannot_be_joined_is_disassembled_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    from collector import disassembly

    cubins = [cubin(tmp_path, f"_k{seed}", seed) for seed in (2, 3)]
    if fault == "two functions":
        cubins.append(disassembly.merged(cubins))
    if fault == "refused":
        monkeypatch.setattr(disassembly, "merged", lambda found: b"no such file")
    if fault == "lost":
        monkeypatch.setattr(disassembly, "merged", lambda found: found[0])
    assert disassembly.disassembled(cubins) == alone(cubins)


def test_one_kernel_or_none(tmp_path: Path) -> None:
    from collector import disassembly

    one = [cubin(tmp_path, "_k", 2)]
    assert disassembly.disassembled(one) == alone(one)
    assert disassembly.disassembled([]) == []
