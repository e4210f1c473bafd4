"""What identifies machine code, and what it takes to get at it."""

import pytest

from collector import codegen

pytest.importorskip("triton")


def test_machine_code_is_disassembled_once_for_all_processes(tmp_path, monkeypatch):
    calls = []

    def get_sass(cubin):
        calls.append(cubin)
        return "/*0000*/ EXIT ;"

    monkeypatch.setattr("triton.tools.disasm.get_sass", get_sass)
    monkeypatch.setattr(codegen, "CACHE", tmp_path / "sass")
    first = codegen.sass_hash(b"one", "kernel")
    codegen.sass_hash.cache_clear()
    assert codegen.sass_hash(b"one", "kernel") == first
    assert calls == [b"one"]
    codegen.sass_hash(b"two", "kernel")
    assert calls == [b"one", b"two"]


def test_machine_code_is_hashed_where_nothing_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("triton.tools.disasm.get_sass", lambda cubin: "/*0000*/ EXIT ;")
    monkeypatch.setattr(codegen, "CACHE", tmp_path / "file")
    assert codegen.sass_hash(b"three", "kernel")
