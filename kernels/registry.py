"""Find the ops: one module in `kernels/ops` is one OP, named as its file."""

from __future__ import annotations

import importlib
import pkgutil

from kernels import ops
from kernels.spec import Op, OpError


def op_names() -> tuple[str, ...]:
    """Return the names of all ops, in alphabetical order, without importing them."""
    return tuple(
        sorted(m.name for m in pkgutil.iter_modules(ops.__path__) if not m.name.startswith("_"))
    )


def load_op(name: str) -> Op:
    """Import one op and check it; OpError says what is wrong with its module."""
    if name not in op_names():
        raise OpError(f"unknown op {name!r}; there are: {', '.join(op_names())}")
    op = getattr(importlib.import_module(f"kernels.ops.{name}"), "OP", None)
    if not isinstance(op, Op):
        raise OpError(f"kernels/ops/{name}.py: define OP = Op(...)")
    return checked(op, name)


def load_ops() -> dict[str, Op]:
    """Import every op, by name."""
    return {name: load_op(name) for name in op_names()}


def checked(op: Op, module: str) -> Op:
    """Return the op if it keeps the contract; OpError names the module and the rule."""
    names = [implementation.name for implementation in op.implementations]
    rules = {
        f"name must be {module!r}, as the file": op.name == module,
        f"baseline {op.baseline!r} must be one of {names}": op.baseline in names,
        "implementation names must differ": len(set(names)) == len(names),
        "at least one workload must carry the tag 'smoke'": bool(op.select("smoke")),
        f"axis {op.axis!r} must be a size of every workload": all(
            op.axis in w.sizes for w in op.workloads
        ),
        "every dtype of the workloads needs a tolerance": {w.dtype for w in op.workloads}
        <= set(op.tolerance),
        "workloads must differ": len({w.key for w in op.workloads}) == len(op.workloads),
    }
    broken = [rule for rule, kept in rules.items() if not kept]
    if broken:
        raise OpError(f"kernels/ops/{module}.py: {'; '.join(broken)}")
    return op
