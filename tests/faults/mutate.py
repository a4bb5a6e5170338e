#!/usr/bin/env python3
"""Writes a copy of a source of the compiler with a table's faults in it, each under a switch.

An entry's text `find` must occur exactly once in its file; `replace` stands there instead, with
`$fault` for the question whether this fault is switched on.
"""

import argparse
import json
import pathlib
import sys


class Mistake(Exception):
    pass


def copy_with(text, faults, file):
    """The text with each fault's replacement; places must not overlap."""
    places = []
    for fault in faults:
        found = text.count(fault["find"])
        if found != 1:
            raise Mistake(f"{file}: the text of fault '{fault['name']}' occurs {found} times, not "
                          f"once; it is\n{fault['find']}\n"
                          "Adjust `find` and `replace` in tests/faults/faults.json to the source.")
        if "$fault" not in fault["replace"]:
            raise Mistake(f"fault '{fault['name']}': `replace` does not name $fault")
        begin = text.index(fault["find"])
        places.append((begin, begin + len(fault["find"]), fault))
    places.sort(key=lambda place: place[0])
    for (_, end, one), (begin, _, other) in zip(places, places[1:]):
        if begin < end:
            raise Mistake(f"{file}: faults '{one['name']}' and '{other['name']}' overlap")
    for begin, end, fault in reversed(places):
        switch = 'kiln::fault("' + fault["name"].replace('"', '\\"') + '")'
        text = text[:begin] + fault["replace"].replace("$fault", switch) + text[end:]
    return '#include "tests/faults/fault.h"\n' + text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("root", type=pathlib.Path, help="of the sources")
    parser.add_argument("out", type=pathlib.Path, help="where the copy goes")
    parser.add_argument("file", help="relative to both")
    arguments = parser.parse_args()
    table = json.loads(arguments.table.read_text())
    names = [fault["name"] for fault in table]
    for name in names:
        if names.count(name) > 1:
            raise Mistake(f"two faults are named '{name}'")
    faults = [fault for fault in table if fault["file"] == arguments.file]
    text = copy_with((arguments.root / arguments.file).read_text(), faults, arguments.file)
    out = arguments.out / arguments.file
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)


if __name__ == "__main__":
    try:
        main()
    except Mistake as mistake:
        sys.exit(f"mutate.py: {mistake}")
