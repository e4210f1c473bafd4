"""Ask Triton's front end, not its interpreter, for each form of each kernel; print the refusals."""

import sys
from typing import Any
from unittest.mock import patch

from triton._C.libtriton import ir
from triton.compiler.compiler import make_backend

from collector.launches import Form, compiled, forms, op_launches
from collector.static_worker import gpu_target
from kernels.registry import load_ops

TARGET = gpu_target("sm_90")
# `codegen` compiles the others as a whole.
TAGS = ("smoke", "edge")


class Accepted(Exception):  # noqa: N818 - it ends a compilation that went well
    """The front end is through: the later stages are not needed here."""


def front_end(source: Any, target: Any, options: dict[str, Any], **_: Any) -> None:
    """Turn a function into Triton's own IR and stop, where Triton would go on to machine code."""
    backend = make_backend(target)
    parsed = backend.parse_options(options | source.parse_options())
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(parsed), backend.get_module_map()
    source.make_ir(target, parsed, *functions, context)
    raise Accepted


def refusal(form: Form) -> str | None:
    """Return why a form is not accepted, or None."""
    try:
        with patch.object(form.launch.function, "compile", front_end):
            compiled(form, TARGET)
    except Accepted:
        return None
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is what is asked for
        return str(error)
    return "compiled without its front end"


def main() -> None:
    """Print the number of forms, then a line for each refusal."""
    found = [
        form for op in load_ops().values() for form in forms(op_launches(op, TAGS, True), TARGET)
    ]
    sys.stdout.write(f"{len(found)} forms\n")
    for form in found:
        if why := refusal(form):
            launch = form.launch
            told = launch.op, launch.implementation, launch.workload, why.splitlines()[-1]
            sys.stdout.write(": ".join(told) + "\n")


if __name__ == "__main__":
    main()
