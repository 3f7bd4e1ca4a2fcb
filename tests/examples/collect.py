#!/usr/bin/env python3
"""collect.py SRC OUT ROOMS...: writes one source file with the examples that open the headers of some folders of SRC, with all
folders below them.

The example of a header is the part of the comment at its head that is indented by three blanks. It becomes the body of a
function, and may use the names of prelude.h and, if it exists, of the header of the innermost of the ROOMS that has it
(data_sources.h for data/sources); "..." stands for a statement.
"""
import pathlib
import re
import sys

# These show a file, an output or a formula; external_data.h needs protobuf.
NOT_CODE = {"checkpoint/layout.h", "checkpoint/manifest.h", "metrics/display/progress_text.h", "metrics/display/time_summary.h",
            "backend/tensor.h", "onnx/file/external_data.h", "optim/rules/adam.h", "optim/rules/lamb.h", "optim/rules/lars.h",
            "optim/rules/muon.h", "optim/rules/rmsprop.h", "optim/rules/sgd.h"}
# Examples of these need a device's own headers.
OTHERS = ("backend/cpu/", "backend/cuda/", "comm/nccl/")


def example(lines):
    """The number of the first line of the example, from 1, and its lines; or None."""
    first, body = None, []
    for number, line in enumerate(lines, 1):
        if line.startswith("#pragma once"):
            break
        shown = line.startswith("//   ")
        if first is None and not shown:
            continue
        if first is not None and not shown and line.strip() != "//":
            break
        first = first or number
        body.append(re.sub(r"(^|\s)\.\.\.\s*($|//)", r"\1; \2", line[2:]))
    return first and (first, body)


def main():
    source, target, rooms = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    includes, bodies = ['#include "examples/prelude.h"'], []
    names = {room: room.replace("/", "_") for room in rooms}
    includes += [f'#include "examples/{own}.h"' for own in names.values() if (pathlib.Path(__file__).parent / f"{own}.h").exists()]
    found = {path for room in rooms for path in (source / room).rglob("*.h")}
    for header in sorted(path for path in found if not str(path.relative_to(source)).startswith(OTHERS)):
        name = str(header.relative_to(source))
        room = max((room for room in rooms if name.startswith(room + "/")), key=len)
        shown = example(header.read_text().splitlines())
        if shown is None or name in NOT_CODE:
            continue
        includes.append(f'#include "{name}"')
        space = "example_" + re.sub(r"\W", "_", name[:-2])
        bodies += [f"namespace ddp::{names[room]}_examples::{space} {{", "[[maybe_unused]] static void example() {",
                   f'#line {shown[0]} "{header}"', *shown[1], "}", "}"]
    if not bodies:
        sys.exit(f"there are no examples in {', '.join(rooms)} of {source}")
    target.write_text("\n".join(includes + bodies) + "\n")


main()
