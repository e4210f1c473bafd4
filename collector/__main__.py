"""The command line: python -m collector collect, compare, report, roofline, counters and others.

Every command ends with 0 fine, 1 error, 2 regression, 3 not comparable, 4 wrong results or 64 bad
command line. Results go to stdout; messages, with what, where and what to do, to stderr.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from collector import backfill_command, choices, code_files, commands, store
from collector import schema as schema_files
from collector.backfill import BackfillError
from collector.device import DeviceError
from collector.exit_codes import FAILED, USAGE
from collector.occupancy import LIMITS
from collector.plan import PlanError
from collector.static_code import CompileError
from collector.terminal import fail, tell
from kernels.spec import OpError

THERE = "was there already"
CALIBRATION_REPLICATES = 10
# What may differ when a run is gone on with.
ANEW = {"budget", "timeout", "resume", "output", "commit"}

app = typer.Typer(
    help="Measure GPU kernels and keep what was measured.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def collect(
    context: typer.Context,
    op: choices.Ops = None,
    implementation: choices.Implementations = None,
    workload: choices.Workloads = None,
    dtype: choices.Dtypes = None,
    mode: choices.Modes = None,
    timer: choices.Timers = None,
    cache: choices.Caches = None,
    ranks: choices.Ranks = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Fresh processes, usually 1; 5 or more tell a change from noise.",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure unchanged code at least 10 times over, to know how often it would be "
            "called slower or faster and how small a change can be seen.",
        ),
    ] = False,
    budget: choices.Budget = None,
    timeout: choices.Timeout = 300.0,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Go on with a run that was stopped, as it was asked for."
        ),
    ] = None,
    output: choices.Data = Path("data"),
    commit: Annotated[
        str | None,
        typer.Option(metavar="SHA", help="The commit that is measured, where git cannot tell."),
    ] = None,
) -> None:
    """Check and time the kernels on this machine; the result is one new file under data/runs.

    Options that choose can be given more than once. Without any, all ops run at their usual sizes.
    """
    if resume is not None and not context.obj:
        return go_on(context, resume)
    least = CALIBRATION_REPLICATES if calibrate else 1
    if replicates is not None and replicates < least:
        raise typer.BadParameter(f"--calibrate needs {least} or more", param_hint="--replicates")
    chosen = choices.chosen(op, implementation, workload, dtype, mode, timer, cache)
    options = replace(
        chosen,
        ranks=tuple(dict.fromkeys(ranks or ())),
        replicates=replicates or least,
        budget_s=budget,
        timeout_s=timeout,
        resume=resume,
        output=output,
        commit=commit,
        purpose="calibrate" if calibrate else "measure",
    )
    try:
        from collector.collect import collect as run
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        remedy = "`make collect` installs it, or name a Python that has it: PYTHON=python3"
        fail(f"{error.name} is not installed in {sys.executable}: {remedy}", FAILED)
    raise typer.Exit(run(options))


def go_on(context: typer.Context, path: Path) -> None:
    """Collect what a run was asked for, as its first line says; the budget may be new."""
    given = {name for name in context.params if said(context, name)} - ANEW
    if given:
        option = f"--{min(given)}"
        raise typer.BadParameter("the run is gone on with as it was asked for", param_hint=option)
    made = context.command.make_context("collect", store.choices_of(path), obj="resumed")
    anew = {"budget", *filter(partial(said, context), ANEW)}
    made.params |= {name: context.params[name] for name in anew}
    context.command.invoke(made)


def said(context: typer.Context, name: str) -> bool:
    """Tell whether an option was given."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


@app.command()
def compare(
    candidate: Annotated[
        str, typer.Argument(metavar="CANDIDATE", help="A run file, a commit, a tag or a branch.")
    ],
    baseline: Annotated[
        str | None,
        typer.Argument(
            metavar="BASELINE",
            help="What it is held against, named likewise; `previous`, which is usual, is the "
            "commit before that was measured on the same device.",
        ),
    ] = None,
    baseline_option: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help="The same as the second argument."),
    ] = None,
    max_regression_percent: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="PERCENT",
            help="Fail only for what became slower by more than this; with one replicate a side, "
            "where noise is not known, this alone decides.",
        ),
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Tell of this op alone.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Compare on this device alone.")] = "",
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder.")] = Path(
        "data"
    ),
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Measure what may be slower once more, in fresh processes on this machine, before "
            "it is called slower; the candidate must be the commit that is checked out.",
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show what did not change as well, row by row.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all rows as JSON as well.")
    ] = None,
    markdown_file: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write it for a pull request as well."),
    ] = None,
) -> None:
    """Tell whether kernels became slower or faster, how sure that is, and why.

    Ends with 2 when something became slower or failed, with 4 when a result became wrong.
    """
    if None not in (baseline, baseline_option):
        raise typer.BadParameter("give the baseline once", param_hint="--baseline")
    named = baseline_option if baseline is None else baseline
    if max_regression_percent is not None and not math.isfinite(max_regression_percent):
        raise typer.BadParameter("give a number", param_hint="--max-regression-percent")
    try:
        from collector import compare_command
    except ModuleNotFoundError as error:
        remedy = "`make install` installs it, or name a Python that has it: PYTHON=python3"
        fail(f"{error.name} is not installed in {sys.executable}: {remedy}", FAILED)
    limit = None if max_regression_percent is None else max_regression_percent / 100
    request = compare_command.Request(
        candidate=candidate,
        baseline=compare_command.PREVIOUS if named is None else named,
        data=data,
        repo=Path(__file__).parent.parent,
        ops=tuple(op or ()),
        device=device,
        limit=limit,
    )
    raise typer.Exit(
        compare_command.run(request, tell, everything, json_file, markdown_file, confirming=confirm)
    )


@app.command()
def codegen(
    op: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this op, for example sinkhorn.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Only this architecture: {', '.join(LIMITS)}."),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(metavar="SHA", help="Compile the kernels of this commit, not of this tree."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compile nothing: take what this record says."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|COMMIT",
            help="Write nothing: say what differs from this record, or from that of the nearest "
            "commit at or before this one.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what differs as JSON; with --against.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Compile workloads tagged `full` and dependent launches as well: some minutes.",
        ),
    ] = False,
    sass: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the machine code there, as text, by its hash."),
    ] = None,
    output: choices.Data = Path("data"),
) -> None:
    """Compile every Triton kernel for GPUs that need not be there, and keep or compare the result.

    Registers, spills, shared memory, occupancy and instructions by kind are written to one file a
    commit and compiler under data/codegen. With --against it ends with 2 when a rule that is a
    gate is broken, for example by new spills, and with 3 when there is no record to compare with.
    Workloads tagged `default` are compiled, and one for each kernel that none of them launches.
    """
    if unknown := set(target or ()) - set(LIMITS):
        raise typer.BadParameter(f"{min(unknown)!r} is none of {', '.join(LIMITS)}")
    if as_json and against is None:
        raise typer.BadParameter("--json needs --against")
    from rich.console import Console

    from collector import code_command

    options = code_command.CodeOptions(
        ops=tuple(op or ()),
        targets=tuple(target or LIMITS),
        commit=commit,
        record=record,
        against=against,
        as_json=as_json,
        everything=everything,
        sass=sass,
        output=output,
    )
    raise typer.Exit(code_command.codegen(options, Console(), Console(stderr=True)))


for command in (
    backfill_command.backfill,
    commands.report,
    commands.roofline,
    commands.counters,
):
    app.command()(command)


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Record files (.jsonl).")],
    output: choices.Data = Path("data"),
) -> None:
    """Bring in files that another host made: all of them, or none when one is not sound.

    With a record of what a compiler made comes the machine code that lies in the folder beside it.
    """
    compiled = code_files.planned((path for path in files if code_files.is_code(path)), output)
    for added in store.add((path for path in files if not code_files.is_code(path)), output):
        for note in added.notes:
            tell(note)
        what = f"{added.records} records" if added.records else THERE
        typer.echo(f"{added.path}: {what}")
    code_files.add(compiled)
    for one in compiled:
        what = f"{one.kernels} kernels, {len(one.new)} files written" if one.new else THERE
        typer.echo(f"{one.path}: {what}")


@app.command()
def validate(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="Record files or data folders.")
    ] = None,
) -> None:
    """Check records line by line; each problem is told as file:line: field: what, and remedy."""
    chosen = paths or [Path("data")]
    sound, problems = store.validate(path for path in chosen if not code_files.is_code(path))
    compiled, wrong = code_files.validate(chosen)
    sound, problems = sound + compiled, problems + wrong
    for problem in problems:
        tell(str(problem))
    typer.echo(
        f"{sound} sound records, {len(problems)} problems" if sound or problems else store.NO_RUNS
    )
    if problems:
        raise typer.Exit(FAILED)


@app.command()
def schema(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; tell what is old.")
    ] = False,
    output: choices.Data = Path("data"),
) -> None:
    """Write the record's JSON schema and its documentation, data/README.md."""
    stale = schema_files.stale(output)
    for path in stale:
        if check:
            tell(f"{path}: differs from collector/record.py; run `make fix`")
        else:
            schema_files.write(path, output)
            typer.echo(f"{path}: written")
    if check and stale:
        raise typer.Exit(FAILED)


def main() -> NoReturn:
    """Run the command line and end with the exit codes of this module."""
    # Click ends a mistyped command line with 2, which here would read as a regression.
    for error in typer.BadParameter.__mro__:
        if vars(error).get("exit_code") == 2:
            error.exit_code = USAGE  # type: ignore[attr-defined]
    try:
        app(prog_name="python -m collector")
    except PlanError as error:
        fail(str(error), USAGE)
    except (BackfillError, CompileError, DeviceError, OpError, store.StoreError) as error:
        fail(str(error), FAILED)
    raise AssertionError("the command line ends by itself")


if __name__ == "__main__":
    main()
