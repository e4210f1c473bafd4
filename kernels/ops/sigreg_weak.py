"""SIGReg of a batch on every rank: weak scaling along `ranks`."""

from kernels.sigreg import over_ranks

OP = over_ranks.op(
    name="sigreg_weak",
    title="SIGReg over ranks: a batch each",
    summary="SIGReg of the rows of all ranks, as many on each; along ranks each has as much to "
    "do and the batch grows.",
    axis="rows_per_rank",
    rows=(128, 512, 2048, 4096, 8192),
)
