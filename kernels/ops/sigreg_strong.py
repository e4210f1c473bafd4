"""SIGReg of one batch that is shared out over ranks: strong scaling along `ranks`."""

from kernels.sigreg import over_ranks

OP = over_ranks.op(
    name="sigreg_strong",
    title="SIGReg over ranks: one batch shared out",
    summary="SIGReg of a batch of which each rank holds an equal part; along ranks the batch "
    "stays and each rank has less to do.",
    axis="batch",
    rows=(1024, 2048, 4096, 8192, 16384),
)
