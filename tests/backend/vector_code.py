#!/usr/bin/env python3
"""Finds kernels that the compiler did not vectorise, in the compiled code of each instruction set.

    tests/backend/vector_code.py norm_kernels_avx2.cpp.o norm_kernels_baseline.cpp.o
    tests/backend/vector_code.py --list norm_kernels_avx2.cpp.o      # what each function consists of
    tests/backend/vector_code.py --self-test g++                     # that scalar code is found, also beside vector code

`#pragma omp simd` is only a request: where an instruction set lacks something, such as masks, compilers compile a loop value by
value without a word, which is five to twenty times as slow. So this reads the machine code: the innermost loops of every
function, which compute on vectors (packed), on single values (scalar), or not at all. A packed loop may come with one scalar
loop, for the values that fill no vector. A function with more of them, or with scalar divisions or square roots and no packed
ones, is reported, unless ALLOWED lists it with a reason.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# How many more scalar loops than packed ones a function may have, and why they do no harm.
ALLOWED = {
    "added_in_order": (1, "a sum whose order is part of its bits"),
    "maximum_forward": (1, "windows of positions with fewer values than a vector"),
    "multiply_panel": (1, "written once, after the products of a whole panel"),
    "outer_weights": (1, "written once, after the products of a whole batch, to places apart"),
    "update_chunks": (1, "the numbers of a chunk of thousands of weights"),
}
# Files that contain other functions than kernels, and which of theirs are.
KERNELS = {"update.cpp.o": r"update_(range|chunks|lamb_moments)"}

ARITHMETIC = r"add|sub|mul|div|sqrt|min|max|fn?m(?:add|sub)\d*|u?comi|cmp[a-z_]*"
SCALAR = re.compile(rf"v?(?:{ARITHMETIC})s[sd]$")
PACKED = re.compile(rf"v?(?:{ARITHMETIC})p[sd]$|vdpbf16ps$")
LONG = re.compile(r"v?(div|sqrt)(s|p)[sd]$")


def functions(path):
    """The functions of an object file: names and lists of (address, mnemonic, operands)."""
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", "-w", str(path)], capture_output=True, text=True,
                          check=True).stdout
    name, body = None, []
    for line in code.splitlines():
        if found := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            if body:
                yield name, body
            name, body = found[1], []
        elif found := re.match(r"\s*([0-9a-f]+):\s+(?:(?:lock|rep\w*|notrack|bnd|data16|cs) )*(\S+)\s*(.*)$", line):
            body.append((int(found[1], 16), found[2], found[3]))
    if body:
        yield name, body


def blocks_of(body):
    """The basic blocks as lists of mnemonics, and for each the numbers of those that may follow it."""
    at = {address: i for i, (address, _, _) in enumerate(body)}
    targets = {}
    for i, (_, mnemonic, operands) in enumerate(body):
        if mnemonic.startswith("j") and (found := re.match(r"[0-9a-f]+\b", operands)):
            targets[i] = at.get(int(found[0], 16))
    ends = {i + 1 for i, (_, mnemonic, _) in enumerate(body) if mnemonic.startswith(("j", "ret", "ud2"))}
    starts = sorted(({0} | ends | {target for target in targets.values() if target is not None}) - {len(body)})
    number = {start: n for n, start in enumerate(starts)}
    blocks, following = [], []
    for start, end in zip(starts, [*starts[1:], len(body)]):
        blocks.append([mnemonic for _, mnemonic, _ in body[start:end]])
        after = []
        if targets.get(end - 1) is not None:
            after.append(number[targets[end - 1]])
        if not blocks[-1][-1].startswith(("jmp", "ret", "ud2")) and end in number:
            after.append(number[end])
        following.append(after)
    return blocks, following


def cycles(nodes, edges):
    """The sets of nodes that can reach one another (Kosaraju's algorithm)."""
    order, seen = [], set()
    for root in nodes:
        work = [] if root in seen else [(root, iter(edges[root]))]
        seen.add(root)
        while work:
            node, rest = work[-1]
            other = next((o for o in rest if o not in seen), None)
            if other is None:
                order.append(node)
                work.pop()
            else:
                seen.add(other)
                work.append((other, iter(edges[other])))
    backwards = {node: [] for node in nodes}
    for node in nodes:
        for other in edges[node]:
            backwards[other].append(node)
    found, seen = [], set()
    for root in reversed(order):
        if root in seen:
            continue
        part, work = set(), [root]
        seen.add(root)
        while work:
            node = work.pop()
            part.add(node)
            new = [o for o in backwards[node] if o not in seen]
            seen.update(new)
            work.extend(new)
        if len(part) > 1 or root in edges[root]:
            found.append(part)
    return found


def innermost_loops(following):
    """Sets of blocks."""
    found = []
    work = [(set(range(len(following))), dict(enumerate(following)))]
    while work:
        nodes, edges = work.pop()
        for part in cycles(nodes, edges):
            # Without the edges back to where the loop is entered only the loops inside it are left.
            entries = {o for n in nodes - part for o in edges[n]} & part or {min(part)}
            inside = {n: [o for o in edges[n] if o in part and o not in entries] for n in part}
            if cycles(part, inside):
                work.append((part, inside))
            else:
                found.append(part)
    return found


def count_loops(body):
    """How many innermost loops are scalar and how many are packed, and the long operations in scalar loops alone. Logical and
    integer instructions of vector registers do not count, as single values lie in these registers too."""
    blocks, following = blocks_of(body)
    scalar, packed = [], []
    for loop in innermost_loops(following):
        mnemonics = [mnemonic for n in loop for mnemonic in blocks[n]]
        if any(PACKED.match(m) for m in mnemonics):
            packed.append(mnemonics)
        elif any(SCALAR.match(m) for m in mnemonics):
            scalar.append(mnemonics)

    def long_of(loops, kind):
        return {found[1] for loop in loops for m in loop if (found := LONG.match(m)) and found[2] == kind}

    return len(scalar), len(packed), long_of(scalar, "s") - long_of(packed, "p")


def short(name):
    """Without return type, namespaces and arguments: "elementwise_forward<3>"."""
    name = re.sub(r"\(anonymous namespace\)", "_", name)
    name = re.sub(r"ddp::(\w+::)*", "", name)
    name = re.sub(r"^(void|float|double|auto) ", "", name)
    return name.split("(")[0]


def faults_in(path, listing=False):
    """Of the scalar functions of an object file, a line each; and how many functions were read."""
    faults, count = [], 0
    kernels = re.compile(KERNELS.get(pathlib.Path(path).name, ""))
    for name, body in functions(path):
        if not kernels.match(short(name)):
            continue
        count += 1
        scalar, packed, long = count_loops(body)
        if listing and scalar + packed > 0:
            print(f"{scalar:3} scalar {packed:3} packed  {short(name)}")
        more, _ = ALLOWED.get(re.sub(r"<.*", "", short(name)), (0, ""))
        if scalar <= packed + more and (more > 0 or not long):
            continue
        reason = f"; without packed instructions: {', '.join(sorted(long))}" if long else ""
        faults.append(f"{pathlib.Path(path).name}: {short(name)}: {scalar} scalar and {packed} packed loops{reason}")
    return faults, count


SELF_TEST = """
static inline float sigmoid(float x) {
  const float e = x * x + 1.0F;
  const float below = e * e * x;
  return (x < 0.0F ? below : e) / (1.0F + e);
}
void comparing(long count, const float* x, float* y) {
#pragma omp simd
  for (long i = 0; i < count; ++i) y[i] = sigmoid(x[i]);
}
void one_of_two(long count, const float* x, const float* x2, float* y) {
  if (x2 == nullptr) {
#pragma omp simd
    for (long i = 0; i < count; ++i) y[i] = x[i] + 1.0F;
    return;
  }
#pragma omp simd
  for (long i = 0; i < count; ++i) y[i] = sigmoid(x[i] + x2[i]);
}
"""


def self_test(compiler):
    """The same source, compiled so that it is scalar and so that it is packed."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "kernels.cpp"
        source.write_text(SELF_TEST, encoding="utf-8")
        for flag, wanted in [("-ftrapping-math", ["comparing", "one_of_two"]), ("-fno-trapping-math", [])]:
            object_file = source.with_suffix(".o")
            subprocess.run([compiler, "-O3", "-mavx2", "-fopenmp-simd", flag, "-c", source, "-o", object_file], check=True)
            faults, count = faults_in(object_file)
            found = sorted(name for name in ["comparing", "one_of_two"] if any(f": {name}:" in fault for fault in faults))
            if found != wanted or count < 2:
                sys.exit(f"with {flag} scalar functions are {wanted}, but {found} were found")
    print("scalar loops are found, vectors are not reported")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="*", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", metavar="COMPILER")
    args = parser.parse_args()
    if args.self_test:
        return self_test(args.self_test)
    if not args.objects:
        sys.exit("no object files")
    faults = []
    for path in args.objects:
        found, count = faults_in(path, args.list)
        if count == 0:
            sys.exit(f"{path} contains no kernels")
        print(f"{path.name}: {count} functions, {len(found)} of them scalar")
        faults += found
    if faults:
        sys.exit("\n".join(faults))
    return None


if __name__ == "__main__":
    main()
