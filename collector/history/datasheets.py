"""Peaks of cards as their makers print them: never measured here, so never beside what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collector.history.model import Ceilings


@dataclass(frozen=True, slots=True)
class Card:
    """Peak rates of one card: memory in bytes/s, pipes in operations/s, tensor cores dense."""

    slug: str
    name: str
    memory_bytes_per_s: float
    fp32_flops_per_s: float
    gemm_flops_per_s: Mapping[str, float]
    source: str

    @property
    def roofs(self) -> Ceilings:
        """Return the peaks in the form in which roofs are drawn."""
        return Ceilings(
            copy_bytes_per_s=self.memory_bytes_per_s,
            read_bytes_per_s=None,
            write_bytes_per_s=None,
            l2_bytes_per_s=None,
            fp32_flops_per_s=self.fp32_flops_per_s,
            special_ops_per_s=None,
            gemm_flops_per_s=self.gemm_flops_per_s,
            floor_graph_ns=None,
            floor_call_ns=None,
            floor_submit_ns=None,
        )


def _card(
    slug: str, name: str, tb_per_s: float, fp32: float, half: float, tf32: float, int8: float,
    source: str,
) -> Card:  # fmt: skip
    """Make a card of TB/s and TFLOP/s; both halves run at one rate, summed up in float32."""
    gemm = {"bf16": half, "fp16": half, "tf32": tf32, "int8": int8}
    rates = {pipe: tflop_per_s * 1e12 for pipe, tflop_per_s in gemm.items()}
    return Card(slug, name, tb_per_s * 1e12, fp32 * 1e12, rates, source)


CARDS = (
    _card(
        "b200", "B200", 8.0, 80, 2250, 1100, 4500,
        "NVIDIA Blackwell Architecture Technical Brief, HGX B200, half of the rates with sparsity",
    ),
    _card(
        "h200", "H200 SXM", 4.8, 67, 989.5, 494.5, 1979,
        "NVIDIA H200 Tensor Core GPU datasheet, half of the rates with sparsity",
    ),
    _card(
        "h100", "H100 SXM", 3.35, 67, 989.5, 494.5, 1979,
        "NVIDIA H100 Tensor Core GPU datasheet, half of the rates with sparsity",
    ),
    _card(
        "a100", "A100 80GB SXM", 2.039, 19.5, 312, 156, 624,
        "NVIDIA A100 Tensor Core GPU datasheet, rates without sparsity",
    ),
    _card(
        "rtx-4090", "RTX 4090", 1.008, 82.6, 165.2, 82.6, 660.6,
        "NVIDIA Ada GPU Architecture whitepaper, rates without sparsity",
    ),
    _card(
        "rtx-5070-ti", "RTX 5070 Ti", 0.896, 43.9, 87.9, 43.9, 351.5,
        "NVIDIA RTX Blackwell GPU Architecture whitepaper, rates without sparsity",
    ),
)  # fmt: skip
