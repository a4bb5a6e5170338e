#!/usr/bin/env python3
"""Checks what the house style can say mechanically: include arrows, file sizes, what prints, self-contained
headers, words and paths that do not belong, whitespace, formatting, a README in every folder.

Prints `file:line: message` for each finding; exit status 1 if there are any.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Who may include what. The longest prefix of the including file decides; an entry that ends in
# ".h" allows that header alone, any other a folder. Arrows are written out, not inferred.
ARROWS = {
    "ir/dtype": ["ir/dtype.h"],
    "ir": ["ir"],
    "dsl": ["dsl", "ir"],
    "passes": ["passes", "ir"],
    "codegen": ["codegen", "passes", "ir"],
    "runtime/ptx": ["runtime/ptx", "ir/dtype.h"],
    "runtime": ["runtime", "codegen", "passes", "ir"],
    "kernels": ["kernels", "runtime", "codegen", "passes", "dsl", "ir"],
    "examples": ["examples", "runtime", "dsl", "ir"],
    "tools": ["tools", "kernels", "runtime", "codegen", "passes", "dsl", "ir"],
    "tests": ["tests", "tools", "examples", "kernels", "runtime", "codegen", "passes", "dsl", "ir"],
}

# Folders that may include a library's headers, by the header's first folder; anywhere if absent.
LIBRARIES = {
    "llvm": ["codegen", "tests"],
    "llvm-c": ["codegen", "tests"],
    "CLI": ["tools", "tests"],
    "nlohmann": ["runtime", "tools", "tests"],
    "catch2": ["tests"],
}
# Folders and files that know the standard library and, where listed, fmt, and nothing else.
STANDARD_ONLY = {"ir/dtype": [], "ir": ["fmt"], "dsl": ["fmt"], "passes": ["fmt"],
                 "runtime/ptx": ["fmt"]}

GENERATED = {"build_id.h"}  # headers that the build writes
MAX_LINES = 500
SIZED = (".h", ".cpp", ".def", ".py")
CPP = (".h", ".cpp")
# What the library says goes through this one file.
LIBRARY = ("ir/", "dsl/", "passes/", "codegen/", "runtime/", "kernels/")
SPEAKS = "ir/log.cpp"
PRINTS = re.compile(r"\b(std::(cout|cerr|clog)|stdout|stderr|printf|puts|putchar|fmt::print|outs|errs|dbgs)\b")
BANNED_WORDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|home|root)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def longest_prefix(table, path):
    """The entry of `table` for the longest key that is `path` or a folder or stem of it."""
    keys = [k for k in table if path == k or path.startswith((k + "/", k + "."))]
    return table[max(keys, key=len)] if keys else None


class Tree:
    """The files of a source tree: what git tracks or would, or every file where there is no git."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.findings = []
        self.files = sorted(self._list())
        self._text = {}

    def _list(self):
        listing = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=self.root,
            capture_output=True, text=True) if shutil.which("git") else None
        if listing and listing.returncode == 0:
            names = listing.stdout.splitlines()
        else:
            names = [str(p.relative_to(self.root)) for p in self.root.rglob("*")]
            names = [n for n in names if not n.startswith((".git/", "build/"))
                     and "__pycache__" not in n]
        return [n for n in names if (self.root / n).is_file()]

    def text(self, name):
        """Contents, or None of a binary file."""
        if name not in self._text:
            data = (self.root / name).read_bytes()
            try:
                self._text[name] = None if b"\0" in data else data.decode()
            except UnicodeDecodeError:
                self._text[name] = None
        return self._text[name]

    def report(self, name, line, message):
        self.findings.append((name, line, message))

    def named(self, endings):
        return [n for n in self.files if n.endswith(endings)]


def check_includes(tree):
    known = set(tree.files)
    for name in tree.named(CPP + (".def",)):
        folder = name.split("/")[0]
        arrows = longest_prefix(ARROWS, name)
        for number, line in enumerate((tree.text(name) or "").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            ours, theirs = match.groups()
            if ours and ours not in known | GENERATED:
                tree.report(name, number, f'"{ours}" is not a file of this tree; write '
                                          '"folder/header.h" from the root, or <…> for a library')
            elif ours and ours in known and arrows is not None:
                if not any(ours == a or ours.startswith(a + "/") for a in arrows):
                    tree.report(name, number, f'wrong arrow: may include {", ".join(arrows)}, '
                                              f'not "{ours}"')
            elif theirs:
                check_library(tree, name, number, folder, theirs)


def check_library(tree, name, number, folder, header):
    library = header.split("/")[0] if "/" in header else None
    if library in LIBRARIES and folder not in LIBRARIES[library]:
        tree.report(name, number, f"<{header}>: only {' and '.join(LIBRARIES[library])} may "
                                  f"include {library}")
        return
    allowed = longest_prefix(STANDARD_ONLY, name)
    if allowed is not None and library not in allowed and (library or "." in header):
        tree.report(name, number, f"<{header}>: only {' and '.join(['the standard library'] + allowed)}"
                                  " here")


def check_sizes(tree):
    for name in tree.named(SIZED):
        lines = (tree.text(name) or "").count("\n")
        if lines > MAX_LINES:
            tree.report(name, MAX_LINES + 1, f"{lines} lines, at most {MAX_LINES}: this file is two "
                                             "concepts")


def check_lines(tree):
    for name in tree.files:
        text = tree.text(name)
        if text is None:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                tree.report(name, number, "trailing blanks")
            if "\t" in line:
                tree.report(name, number, "a tab; indent with spaces")
            for match in BANNED_WORDS.finditer(line):
                tree.report(name, number, f"'{match[0]}': finish it or file an issue")
            for match in MACHINE_PATHS.finditer(line):
                tree.report(name, number, f"'{match[0]}': a path of somebody's machine")
        if text and not text.endswith("\n"):
            tree.report(name, text.count("\n") + 1, "no newline at the end")


def check_silence(tree):
    for name in tree.named(CPP):
        if not name.startswith(LIBRARY) or name == SPEAKS:
            continue
        for number, line in enumerate((tree.text(name) or "").splitlines(), 1):
            match = PRINTS.search(line.split("//")[0])
            if match:
                tree.report(name, number, f"'{match[0]}': the library prints nothing; ir/log.h")


def check_headers(tree):
    for name in tree.named((".h",)):
        if "#pragma once" not in (tree.text(name) or "").splitlines():
            tree.report(name, 1, "no #pragma once")


def check_readmes(tree):
    """Every folder at the top, and every kernel's, says what it is."""
    folders = {f.split("/")[0] for f in tree.files if "/" in f and not f.startswith(".")}
    folders |= {"/".join(f.split("/")[:2]) for f in tree.files
                if f.startswith("kernels/") and f.count("/") > 1}
    for folder in sorted(folders):
        if f"{folder}/README.md" not in tree.files:
            tree.report(folder, 1, "no README.md")


def check_format(tree):
    formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not formatter:
        tree.report(".clang-format", 1, "clang-format is not installed: formatting not checked")
        return
    if ".clang-format" not in tree.files:
        return
    # Compared by hand: --dry-run also reports replacements of a text by itself.
    sources = tree.named(CPP)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        formatted = pool.map(lambda n: subprocess.run([formatter, n], cwd=tree.root,
                                                      capture_output=True, text=True), sources)
    for name, run in zip(sources, formatted):
        if run.returncode:
            tree.report(name, 1, f"clang-format failed: {run.stderr.strip()[:200]}")
        elif run.stdout != tree.text(name):
            lines = zip((tree.text(name) + "\n").splitlines(), (run.stdout + "\n").splitlines())
            line = next((n for n, (ours, theirs) in enumerate(lines, 1) if ours != theirs), 1)
            tree.report(name, line, "not formatted: run clang-format -i on it")


def closure(tree, name, seen):
    """`name` and every file of the tree that it includes."""
    if name not in seen and name in tree.files:
        seen.add(name)
        for line in (tree.text(name) or "").splitlines():
            match = INCLUDE.match(line)
            if match and match[1]:
                closure(tree, match[1], seen)
    return seen


def compiles_alone(tree, compiler, name):
    command = [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-I.", "-isystem",
               "/usr/lib/llvm-22/include", "-"]
    run = subprocess.run(command, cwd=tree.root, input=f'#include "{name}"\n', capture_output=True,
                         text=True)
    errors = [l for l in run.stderr.splitlines() if "error:" in l]
    return None if run.returncode == 0 else (errors or run.stderr.splitlines() or ["failed"])[0]


def check_self_contained(tree, cache_file):
    """Compiles each header alone; one whose includes have not changed is not compiled again."""
    compiler = shutil.which("g++") or shutil.which("c++") or "c++"
    try:
        passed = set(json.loads(cache_file.read_text()))
    except (OSError, ValueError):
        passed = set()
    keys = {}
    for name in tree.named((".h",)):
        parts = [compiler] + [f"{n}\n{tree.text(n)}" for n in sorted(closure(tree, name, set()))]
        keys[name] = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    stale = [n for n in keys if keys[n] not in passed]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda n: compiles_alone(tree, compiler, n), stale))
    for name, error in zip(stale, results):
        if error:
            tree.report(name, 1, f"does not compile alone: {error}")
    good = {keys[n] for n in keys} - {keys[n] for n, error in zip(stale, results) if error}
    cache_file.parent.mkdir(parents=True, exist_ok=True)
    cache_file.write_text(json.dumps(sorted(good)))


CHECKS = [check_includes, check_sizes, check_lines, check_silence, check_headers, check_readmes, check_format]


def check(root, compile_headers=True):
    tree = Tree(root)
    for rule in CHECKS:
        rule(tree)
    if compile_headers:
        check_self_contained(tree, tree.root / "build" / "style-cache.json")
    return sorted(tree.findings)


# Self-test: each entry is a small tree with one mistake, and where and how it must be reported.
GOOD_HEADER = "#pragma once\n"
BAD_TREES = [
    ({"ir/a.h": GOOD_HEADER + '#include "dsl/b.h"\n', "dsl/b.h": GOOD_HEADER},
     "ir/a.h:2", "wrong arrow"),
    ({"runtime/ptx/a.h": GOOD_HEADER + '#include "ir/type.h"\n', "ir/type.h": GOOD_HEADER},
     "runtime/ptx/a.h:2", "wrong arrow"),
    ({"ir/dtype.h": GOOD_HEADER + '#include "ir/type.h"\n', "ir/type.h": GOOD_HEADER},
     "ir/dtype.h:2", "wrong arrow"),
    ({"kernels/a.cpp": '#include "tests/b.h"\n', "tests/b.h": GOOD_HEADER},
     "kernels/a.cpp:1", "wrong arrow"),
    ({"ir/a.cpp": '#include "a.h"\n', "ir/a.h": GOOD_HEADER}, "ir/a.cpp:1", "not a file"),
    ({"passes/a.cpp": "#include <llvm/IR/Module.h>\n"}, "passes/a.cpp:1", "may include llvm"),
    ({"runtime/a.cpp": "#include <CLI/CLI.hpp>\n"}, "runtime/a.cpp:1", "may include CLI"),
    ({"ir/a.cpp": "#include <unistd.h>\n"}, "ir/a.cpp:1", "standard library"),
    ({"ir/dtype.cpp": "#include <fmt/format.h>\n"}, "ir/dtype.cpp:1", "standard library here"),
    ({"ir/a.cpp": "// a\n" * (MAX_LINES + 1)}, f"ir/a.cpp:{MAX_LINES + 1}", "two concepts"),
    ({"runtime/a.cpp": '#include <cstdio>\n\nvoid a() { std::puts("a"); }\n'}, "runtime/a.cpp:3", "prints"),
    ({"ir/a.h": "// what\n"}, "ir/a.h:1", "pragma once"),
    ({"ir/a.h": GOOD_HEADER + "inline std::string a;\n"}, "ir/a.h:1", "compile alone"),
    ({"ir/a.cpp": "// TO" "DO: more\n"}, "ir/a.cpp:1", "finish it"),
    ({"tools/a.py": "path = '/home" "/me'\n"}, "tools/a.py:1", "somebody's machine"),
    ({"tests/a.tile": "x \n"}, "tests/a.tile:1", "trailing"),
    ({"tests/a.tile": "\tx\n"}, "tests/a.tile:1", "tab"),
    ({"tests/a.tile": "x"}, "tests/a.tile:1", "no newline"),
    ({"ir/a.cpp": "int  a;\n"}, "ir/a.cpp:1", "not formatted"),
    ({"ir/README.md": None, "ir/a.cpp": "int a;\n"}, "ir:1", "no README"),
    ({"kernels/x/README.md": None, "kernels/x/kernel.cpp": "int a;\n"}, "kernels/x:1", "no README"),
]
GOOD_TREE = {
    "ir/dtype.h": "#pragma once\n\n#include <string>\n",
    "ir/a.h": '#pragma once\n\n#include <fmt/format.h>\n\n#include "ir/dtype.h"\n',
    "dsl/b.cpp": '#include "ir/a.h"\n\nint b;  // not of stdout\n',
    "ir/log.cpp": "#include <cstdio>\n\nvoid say() { std::fputs(\"a\", stderr); }\n",
    "tools/d.cpp": "#include <cstdio>\n\nvoid say() { std::puts(\"a\"); }\n",
    "kernels/x/kernel.cpp": '#include "ir/a.h"\n\nint kernel;\n',
    "tests/c.cpp": "#include <llvm/IR/Module.h>\n\n#include <catch2/catch.hpp>\n",
}


def make_tree(root, files):
    files = {".clang-format": "BasedOnStyle: Google\n", **files}
    for name in list(files):
        parts = name.split("/")
        for depth in range(1, len(parts)):
            files.setdefault("/".join(parts[:depth]) + "/README.md", "What it is.\n")
    for name, text in files.items():
        if text is not None:
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def self_test():
    failures = 0
    for files, place, message in BAD_TREES + [(GOOD_TREE, None, None)]:
        with tempfile.TemporaryDirectory() as root:
            make_tree(root, files)
            found = [f"{n}:{line}: {m}" for n, line, m in check(root)]
        hit = [f for f in found if place and f.startswith(place + ":") and message in f]
        if (place and (len(found) != 1 or not hit)) or (not place and found):
            failures += 1
            print(f"self-test: expected {place}: …{message}…, got {found}")
    print(f"self-test: {len(BAD_TREES) + 1 - failures} of {len(BAD_TREES) + 1} trees judged right")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-compile", action="store_true", help="do not compile headers alone")
    parser.add_argument("--self-test", action="store_true", help="check the checker on bad trees")
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    findings = check(options.root, not options.no_compile)
    for name, line, message in findings:
        print(f"{name}:{line}: {message}")
    print(f"style: {len(findings)} findings" if findings else "style: clean", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
