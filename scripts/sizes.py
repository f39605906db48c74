"""Print what exceeds the project's size limits; a nudge for review, never a failure.

A file or function over its limit may have a good reason. Printing offenders at the end of every
`make check` keeps that reason a decision and not an accident.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_LINES = 300
FUNCTION_LINES = 40
PARAMETERS = 6
PUBLIC_METHODS = 12

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("operator", "stage_runtime", "tests", "benchmarks", "scripts")
GENERATED = ("_pb2.py", "_pb2_grpc.py")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Excess:
    place: str
    name: str
    measure: str
    count: int
    limit: int

    def __str__(self) -> str:
        return f"  {self.place} {self.name}: {self.count} {self.measure} (limit {self.limit})"


def main() -> int:
    found = [excess for path in sources() for excess in excesses(path)]
    if found:
        print("over the size limits (a reason is needed, not a failure):")
        print("\n".join(str(excess) for excess in found))
    else:
        print("sizes: nothing over the limits")
    return 0


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.name.endswith(GENERATED):
                yield path


def excesses(path: Path) -> Iterator[Excess]:
    text = path.read_text(encoding="utf-8")
    place = str(path.relative_to(ROOT))
    measured = [Excess(place, "file", "lines", text.count("\n"), FILE_LINES)]
    for node in ast.walk(ast.parse(text)):
        where = f"{place}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, Function):
            measured += measured_function(where, node)
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if is_public_method(item)]
            measured.append(
                Excess(where, node.name, "public methods", len(methods), PUBLIC_METHODS)
            )
    return (excess for excess in measured if excess.count > excess.limit)


def measured_function(where: str, node: Function) -> list[Excess]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    parameters = [argument for argument in given if argument.arg not in ("self", "cls")]
    return [
        Excess(where, node.name, "lines", lines, FUNCTION_LINES),
        Excess(where, node.name, "parameters", len(parameters), PARAMETERS),
    ]


def is_public_method(node: ast.stmt) -> bool:
    return isinstance(node, Function) and not node.name.startswith("_")


if __name__ == "__main__":
    raise SystemExit(main())
