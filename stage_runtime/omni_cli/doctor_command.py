"""`omni doctor`: what is installed, what runs, what is wrong, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.health_checks import (
    Finding,
    Verdict,
    cluster_findings,
    gpu_findings,
    package_findings,
    port_findings,
    run_findings,
)
from omni_cli.output import Format, Line, Span, line, print_data, print_lines

app = application()

PORTS = (50050, 8000)
"""What `omni up` takes unless it is told otherwise: gRPC, HTTP."""
_MARKS = {Verdict.OK: ("ok", "green"), Verdict.ABSENT: ("--", "dim"), Verdict.WRONG: ("!!", "red")}


@app.command()
def doctor(
    base_path: Annotated[
        Path, typer.Option(help="Directory of runs, where endpoints.base_path was set.")
    ] = Path("/tmp/omnipipe"),
    output: Annotated[
        Format, typer.Option("--output", "-o", help="How to print it.")
    ] = Format.TEXT,
) -> None:
    """Look at this machine and its cluster. Changes nothing; status 1 when something is wrong."""
    findings = tuple(_findings(base_path))
    wrong = [finding for finding in findings if finding.verdict is Verdict.WRONG]
    if output is Format.TEXT:
        print_lines(finding_lines(findings))
    else:
        print_data({"healthy": not wrong, "findings": [_data(one) for one in findings]}, output)
    if wrong:
        raise typer.Exit(1)


def finding_lines(findings: Sequence[Finding]) -> Iterator[Line]:
    """Yield the findings by area, and how it all stands."""
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            yield line(area, "bold")
        mark, style = _MARKS[finding.verdict]
        yield Span(f"  {mark}  ", style), Span(finding.text)
        if finding.next_command:
            yield line(f"      {finding.next_command}", "cyan")
    wrong = sum(finding.verdict is Verdict.WRONG for finding in findings)
    yield line()
    yield line(f"{wrong} wrong" if wrong else "nothing is wrong", "red" if wrong else "green")


def _findings(base_path: Path) -> Iterator[Finding]:
    yield from package_findings()
    yield from gpu_findings()
    runs = tuple(run_findings(base_path))
    yield from runs
    yield from port_findings(PORTS, any(run.verdict is not Verdict.ABSENT for run in runs))
    yield from cluster_findings()


def _data(finding: Finding) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(finding).items()}
