#!/usr/bin/env python3
"""The emulator's counters beside those of a GPU, as Nsight Compute (ncu) reads them.

    compare_counters.py [--kiln KILN] FOLDER

With --kiln it first fills FOLDER: each kernel below runs in the emulator with --profile, and on the
GPU under ncu, on the same inputs. Then it prints a table; the exit status is 1 if a counter differs
by more than 2 %, 77 if there is no ncu or it cannot read a GPU's counters. docs/gpu.md says which
counter is which metric and what rightly differs.
"""
import argparse
import csv
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

TOLERANCE = 0.02
ATTENTION = ["run", "block_sparse_attention", "--heads", "4", "--density", "0.4", "--seed", "5"]
LATE = pathlib.Path(__file__).parents[2] / "tests/files/late"
# Name: arguments of kiln, with files for "{1x2x3}" and "{1x2x3:f16}", normal numbers of that shape,
# and for "{counts 2x8}" and "{indices 2x8}", which key blocks each of 8 query blocks of 2 heads sees.
KERNELS = {
    "attention_d128_mask": [*ATTENTION, "--seq", "1024", "--dim", "128", "--block", "128", "--causal"],
    "attention_d64_lists": [*ATTENTION, "--heads-kv", "2", "--seq", "1000", "--dim", "64", "--block",
                            "64", "--form", "lists"],
    "row_softmax": ["call", "row_softmax", "--in", "x={500x3000}"],
    "tile_copy": ["call", "tile_copy", "--set", "out=f16", "--in", "x={500x3000}"],
    "attention_f32": [*ATTENTION, "--seq", "512", "--dim", "64", "--block", "64", "--dtype", "f32"],
    "matmul_f32": ["call", "matmul", "--set", "dtype=f32", "--in", "a={500x136}", "--in",
                   "b={136x120}"],
    "late_gemm": ["run", f"{LATE}/gemm.tile", "--set", "ctas=3", "--in", "a={500x264:f16}", "--in",
                  "b={696x264:f16}"],
    "late_attention": ["run", f"{LATE}/block_sparse_d128.tile", "--set", "ctas=3", "--set",
                       "scale=0.0884", "--in", "q={1x2x1000x128:f16}", "--in",
                       "k={1x2x1000x128:f16}", "--in", "v={1x2x1000x128:f16}", "--in",
                       "counts={counts 2x8}", "--in", "indices={indices 2x8}"],
}
LAUNCHES_BEFORE = {"late_attention": 1}  # one sets its counter of tiles to zero
ARCHS = {"late_gemm": "sm_90a", "late_attention": "sm_90a"}

WARPS, LANES, WAVEFRONTS, CONFLICTS, SECTORS = range(5)  # columns of the emulator's table
EXECUTED = "Instructions Executed"
LANES_ON = "Predicated-On Thread Instructions Executed"
SHARED, EXCESS = "L1 Wavefronts Shared", "L1 Wavefronts Shared Excessive"
GLOBAL = "L2 Theoretical Sectors Global"
WAVES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
BANKS = "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_"
LDGSTS = "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_"
LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_"

# What is compared: instructions of PTX and a column of the emulator; opcodes of SASS and a column of
# ncu's source page; metrics of the whole kernel, which are summed (all that this ncu has).
COUNTERS = [
    ("tensor-core operations", r"(w?mma\b|wgmma$)", WARPS, r"[HIQDB]G?MMA\b", EXECUTED,
     ["smsp__inst_executed_pipe_tensor_op_hmma"]),
    ("ex2, lanes", r"ex2\b", LANES, r"MUFU\.EX2", LANES_ON, []),
    ("barriers", r"(bar|barrier)$", WARPS, r"BAR\b", EXECUTED, []),
    ("tensor copies in", r"cp\.async\.bulk\.load$", WARPS, r"UTMALDG\b", EXECUTED, []),
    ("tensor copies out", r"cp\.async\.bulk\.store$", WARPS, r"UTMASTG\b", EXECUTED, []),
    ("mbarrier arrivals, lanes", r"mbarrier\.arrive", LANES, r"SYNCS\.ARRIVE", LANES_ON, []),
    ("stmatrix", r"stmatrix", WARPS, r"STSM\b", EXECUTED, []),
    ("ldmatrix", r"ldmatrix", WARPS, r"LDSM\b", EXECUTED, ["smsp__inst_executed_op_ldsm"]),
    ("cp.async", r"cp\.async$", WARPS, r"LDGSTS\b", EXECUTED, ["smsp__inst_executed_op_ldgsts"]),
    ("wavefronts, ldmatrix", r"ldmatrix", WAVEFRONTS, r"LDSM\b", SHARED, [WAVES + "ldsm"]),
    ("wavefronts, ld.shared", r"ld\.shared", WAVEFRONTS, r"LDS\b", SHARED, [WAVES + "ld"]),
    ("wavefronts, st.shared", r"st\.shared", WAVEFRONTS, r"STS\b", SHARED, [WAVES + "st"]),
    ("wavefronts, stmatrix", r"stmatrix", WAVEFRONTS, r"STSM\b", SHARED, []),
    ("wavefronts, cp.async", r"cp\.async$", WAVEFRONTS, r"LDGSTS\b", SHARED, [WAVES + "ldgsts"]),
    ("wavefronts, but cp.async", r"(?!cp)", WAVEFRONTS, r"(?!LDGSTS|\w+GMMA|UTMA|SYNCS)", SHARED,
     ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",
      "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st"]),
    ("conflicts, ldmatrix", r"ldmatrix", CONFLICTS, r"LDSM\b", EXCESS, [BANKS + "ldsm"]),
    ("conflicts, ld.shared", r"ld\.shared", CONFLICTS, r"LDS\b", EXCESS, [BANKS + "ld"]),
    ("conflicts, st.shared", r"st\.shared", CONFLICTS, r"STS\b", EXCESS, [BANKS + "st"]),
    ("conflicts, stmatrix", r"stmatrix", CONFLICTS, r"STSM\b", EXCESS, []),
    ("conflicts, cp.async", r"cp\.async$", CONFLICTS, r"LDGSTS\b", EXCESS, [BANKS + "ldgsts"]),
    ("sectors, ld.global", r"ld\.global", SECTORS, r"LDG\b", GLOBAL, [LOADS + "ld"]),
    ("sectors, st.global", r"st\.global", SECTORS, r"STG\b", GLOBAL, [LOADS + "st"]),
    ("sectors, cp.async", r"cp\.async$", SECTORS, r"LDGSTS\b", GLOBAL,
     [LDGSTS + "access", LDGSTS + "bypass"]),
    ("sectors, but atomics", r"(?!atom|red)", SECTORS, r"(?!UTMA|ATOMG|RED)", GLOBAL, []),
]
# Rows of 544 and 480 bytes begin anywhere in a line of 128 bytes: LDGSTS writes shared memory line by
# line as data arrives, so it takes more turns than its addresses there need. (Its own metric of
# conflicts is 0, as here.)
BY_LINES = {("matmul_f32", "wavefronts, cp.async"), ("matmul_f32", "conflicts, cp.async")}
# Kept in the folder for whoever looks into a difference.
MORE_METRICS = re.compile(
    r"l1tex__data_(bank_conflicts_pipe_lsu|pipe_lsu_wavefronts)_mem_shared\w*"
    r"|l1tex__t_(sectors|requests)_pipe_lsu_mem_global_op_(ld|st|ldgsts\w*)"
    r"|smsp__sass_l1tex_data_\w+_mem_shared\w*|smsp__inst_executed_pipe_(tensor\w*|xu|lsu)"
    r"|smsp__inst_executed_op_(ldsm|ldgsts|shared|global)\w*")


def write(path, shape, dtype, values):
    """A .npy file; dtype is NumPy's without "<"."""
    header = f"{{'descr': '<{dtype}', 'fortran_order': False, 'shape': ({', '.join(shape)}, ), }}"
    code = {"f4": "f", "f2": "e", "i4": "i"}[dtype]
    path.write_bytes(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") +
                     header.ljust(117).encode() + b"\n" + struct.pack(f"<{len(values)}{code}", *values))


def block_lists(heads, tiles):
    """Half the blocks of the causal triangle at random, the diagonal always: counts and indices."""
    source = random.Random(7)
    counts, indices = [], []
    for row in [*range(tiles)] * heads:
        listed = [j for j in range(row) if source.random() < 0.5] + [row]
        counts.append(len(listed))
        indices += listed + [0] * (tiles - len(listed))
    return {"counts": counts, "indices": indices}


def with_files(arguments, folder):
    out = []
    for text in arguments:
        wanted = re.search(r"\{(counts |indices )?(\d+(?:x\d+)+)(:f16)?\}", text)
        if wanted:
            shape = wanted[2].split("x")
            path = folder / f"{text.partition('=')[0]}_{wanted[2]}{(wanted[3] or '')[1:]}.npy"
            if wanted[1]:
                values = block_lists(int(shape[0]), int(shape[1]))[wanted[1].strip()]
                write(path, ["1", *shape, *shape[1:] * (wanted[1] == "indices ")], "i4", values)
            elif not path.exists():
                source = random.Random(len(out))
                values = [source.gauss(0, 1) for _ in range(math.prod(map(int, shape)))]
                write(path, shape, "f2" if wanted[3] else "f4", values)
            text = text.replace(wanted[0], str(path))
        out.append(text)
    return out


def run(command, path, limit=60):
    """Its stdout goes to the file, stderr beside it; whether it went well."""
    with open(path, "w") as out, open(f"{path}.err", "w") as err:
        try:
            status = subprocess.run(command, stdout=out, stderr=err, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            status = 124
    if os.path.getsize(f"{path}.err") == 0:
        os.remove(f"{path}.err")
    return status == 0


def find_ncu():
    found = shutil.which("ncu")
    places = [*pathlib.Path("/usr/local").glob("cuda*/bin/ncu"),
              *pathlib.Path("/opt/nvidia/nsight-compute").glob("*/ncu")]
    return found or next((str(path) for path in places if path.exists()), None)


def known_metrics(ncu, folder):
    """The names, without ".sum", that this ncu can read on this GPU."""
    run([ncu, "--version"], folder / "ncu_version.txt")
    run([ncu, "--query-metrics"], folder / "ncu_metrics.txt")
    return set(re.findall(r"(?m)^(\w+__\w+)\s", (folder / "ncu_metrics.txt").read_text()))


def wanted_metrics(known):
    named = [metric for *_, metrics in COUNTERS for metric in metrics]
    missing = sorted(set(named) - known)
    if missing:
        print("this ncu lacks:", *missing)
    more = [metric for metric in sorted(known)
            if MORE_METRICS.fullmatch(metric) and "_lookup_" not in metric]
    return [metric + ".sum" for metric in dict.fromkeys([*named, *more]) if metric in known]


def profile(ncu, demands, command, path, before):
    """Of the launch that has so many before it. Writes PATH.ncu-rep and what its pages say. Demands that this ncu refuses are dropped."""
    while demands:
        run([ncu, "--force-overwrite", "--export", path, "--clock-control", "none", "--launch-skip",
             str(before), "--launch-count", "1", *demands[0], *command], f"{path}.ncu.txt")
        if os.path.exists(f"{path}.ncu-rep"):
            break
        print(f"ncu failed with {' '.join(demands.pop(0))[:60]}…: see {path}.ncu.txt\n" +
              pathlib.Path(f"{path}.ncu.txt").read_text()[-600:])
    else:
        return False
    page = [ncu, "--import", f"{path}.ncu-rep", "--csv", "--print-units", "base", "--page"]
    if not run([*page, "source", "--print-source", "sass"], f"{path}.source.csv"):
        run([*page, "source"], f"{path}.source.csv")
    return run([*page, "raw"], f"{path}.raw.csv")


def collect(kiln, folder):
    """Whether ncu could do its part."""
    folder.mkdir(parents=True, exist_ok=True)
    ncu = find_ncu()
    if not ncu:
        print("no ncu: on PATH, in the CUDA toolkit or in Nsight Compute's folder")
    metrics = wanted_metrics(known_metrics(ncu, folder)) if ncu else []
    demands = [["--section", "SourceCounters", "--metrics", ",".join(metrics)]] if metrics else []
    demands += [["--set", "full"], ["--section", "SourceCounters"]]
    profiled = bool(ncu)
    for name, arguments in KERNELS.items():
        arch = ARCHS.get(name, "sm_90")
        command = [kiln, *with_files(arguments, folder), "--arch", arch, "--device"]
        if not run([*command, "emulator", "--profile"], folder / f"{name}.emulator.txt"):
            sys.exit(f"{name}: the emulator failed: see {folder / name}.emulator.txt.err")
        if ncu and not profile(ncu, demands, [*command, "cuda"], str(folder / name),
                               LAUNCHES_BEFORE.get(name, 0)):
            profiled = False
    for path in folder.glob("*.npy"):
        path.unlink()
    return profiled


def emulated(path):
    """Instruction to its five figures, from the output of --profile for the last launch."""
    text = path.read_text()
    *_, start = re.finditer(r"\n +warps +lanes +wavefronts +conflicts +sectors  instruction\n", text)
    table = {}
    for line in text[start.end():].splitlines():
        if not line:
            break
        *figures, name = line.split()
        table[name] = [int(figure) for figure in figures]
    return table


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:  # "", "-", "n/a"
        return 0.0


def opcode(text):
    return re.sub(r"^@!?U?P\w+\s+", "", text.strip())


def source_lines(path):
    """SASS lines of the profiled kernel, as dictionaries; empty if ncu gave none."""
    if not path.exists():
        return []
    rows = list(csv.reader(path.open(newline="")))
    header = next((row for row in rows if "Source" in row and EXECUTED in row), None)
    if not header:
        return []
    lines = [dict(zip(header, row)) for row in rows[rows.index(header) + 1:]
             if len(row) == len(header) and row != header]
    return [line for line in lines if line["Source"].strip()]


def raw_metrics(path):
    if not path.exists():
        return {}
    rows = list(csv.reader(path.open(newline="")))
    at = next((i for i, row in enumerate(rows) if "Kernel Name" in row), None)
    return dict(zip(rows[at], rows[-1])) if at is not None and len(rows) > at + 1 else {}


def shown(value):
    return "-" if value is None else f"{value:.0f}"


def ratio(mine, theirs):
    if theirs is None:
        return "-"
    return f"{mine / theirs:.3f}" if theirs else "1.000" if mine == 0 else "inf"


def compare(name, folder):
    """Prints the table; how many counters were compared and which differ."""
    counts = emulated(folder / f"{name}.emulator.txt")
    lines = source_lines(folder / f"{name}.source.csv")
    raw = raw_metrics(folder / f"{name}.raw.csv")
    print(f"\n{name}: {raw.get('Kernel Name', 'no kernel')}, {len(lines)} lines of SASS")
    print(f"{'counter':<26} {'emulator':>10} {'ncu, SASS':>10} {'ratio':>6} {'metric':>10}")
    compared, differ = 0, []
    for what, ptx, column, sass, page, metrics in COUNTERS:
        mine = sum(row[column] for key, row in counts.items() if re.match(ptx, key))
        there = lines and page in lines[0]
        theirs = sum(number(line[page]) for line in lines
                     if re.match(sass, opcode(line["Source"]))) if there else None
        found = [metric + ".sum" for metric in metrics if raw.get(metric + ".sum")]
        metric = sum(number(raw[key]) for key in found) if found else None
        judged = theirs if theirs is not None else metric
        verdict = ""
        if judged is not None and (mine or judged):
            if (name, what) in BY_LINES:
                verdict = " not compared"
            else:
                compared += 1
                if abs(mine - judged) > TOLERANCE * max(mine, judged):
                    differ.append(what)
                    verdict = " DIFFERS"
        if mine or theirs or metric:
            print(f"{what:<26} {mine:>10} {shown(theirs):>10} {ratio(mine, judged):>6} "
                  f"{shown(metric):>10}  {' + '.join(found)}{verdict}")
    return compared, differ


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kiln", help="the command; without it, what is in the folder is compared")
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    profiled = collect(options.kiln, options.folder) if options.kiln else True
    results = {name: compare(name, options.folder) for name in KERNELS
               if (options.folder / f"{name}.emulator.txt").exists()}
    print()
    for name, (compared, differ) in results.items():
        verdict = f"{len(differ)} differ: {'; '.join(differ)}" if differ else "all within 2 %"
        print(f"{name}: {compared} counters compared, {verdict}" if compared else f"{name}: no ncu")
    if not profiled or not all(compared for compared, _ in results.values()):
        print("not everything was measured")
        sys.exit(77)
    sys.exit(any(differ for _, differ in results.values()))


if __name__ == "__main__":
    main()
