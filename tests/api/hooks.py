"""Leads schemathesis to the daemon's Unix socket, and keeps what it asks within the scratch folder and this machine."""

import atexit
import collections
import json
import os
import random
import socket
import zlib

import schemathesis
import urllib3.connection

SCRATCH = os.environ["SCRATCH"]
SOCKET = os.environ["SOCKET"]


def connect(_connection):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(SOCKET)
    return stream


urllib3.connection.HTTPConnection._new_conn = connect

# What is there, by the first word of the path.
KNOWN = {
    "disks": ["d0", "d1", "d4", "d5"],
    "pools": ["tank", "pond"],
    "volumes": ["tank/vm1", "tank/vm2", "ram"],
    "copies": ["tank/vm2"],
    "reservations": ["tank/vm1"],
    "latencies": ["tank/vm1", "ram"],
    "traces": ["tank/vm1"],
    "trace-files": ["tank/vm1"],
    "snapshots": ["tank/vm1@monday"],
    "hosts": ["web", "db"],
    "groups": ["cluster"],
    "targets": ["default", "fast"],
    "portal-groups": ["1"],
    "operations": ["scrub:tank"],
}
FIELDS = {
    "volume": KNOWN["volumes"],
    "volumes": [[name] for name in KNOWN["volumes"]],
    "host": KNOWN["hosts"],
    "hosts": [[name] for name in KNOWN["hosts"]],
    "snapshot": KNOWN["snapshots"],
    "replacement": KNOWN["disks"],
    "disk": KNOWN["disks"],
    "disks": [["d4", "d5"], ["d4"]],
    "pool": KNOWN["pools"],
}

# What makes sense as it stands; N is another number each time.
SENSIBLE = {
    "POST /api/v1/volumes": {"name": "tank/vN", "size": "1MiB", "provision": "thin"},
    "POST /api/v1/pools": {"name": "lake", "groups": [{"level": "raid1", "disks": ["d4", "d5"]}], "force": True},
    "POST /api/v1/hosts": {"name": "hN", "initiators": ["iqn.1993-08.org.debian:01:hN"], "chap": {"secret": "twelve bytes."}},
    "POST /api/v1/snapshots": {"volumes": ["tank/vm1"], "name": "sN"},
    "POST /api/v1/clones": {"snapshot": "tank/vm1@monday", "name": "tank/cN"},
    "POST /api/v1/copies": {"source": "tank/vm1@monday", "name": "pond/cN"},
    "POST /api/v1/rollbacks": {"snapshot": "tank/vm1@monday", "force": True, "confirmed": True},
    "POST /api/v1/presentations/spread": {"volumes": ["ram"], "host": "db", "targets": 2},
    "POST /api/v1/disks/{name}/replace": {"replacement": "d4", "force": True, "confirmed": True},
    "POST /api/v1/disks/{name}/spare": {},
    "POST /api/v1/pools/{name}/log": {"disks": ["d4", "d5"], "force": True},
    "POST /api/v1/pools/{name}/members": {"disk": "d4", "force": True},
    "POST /api/v1/pools/{name}/groups": {"group": {"level": "raid1", "disks": ["d4", "d5"]}, "force": True},
    "PATCH /api/v1/volumes/{name}": {"settings": {"cache-share": "200"}},
    "PATCH /api/v1/snapshots/{name}": {"lock": "unlocked"},
}

LARGEST = 64 << 20


def within(path):
    """A path in the scratch folder: one of sixteen files."""
    return f"{SCRATCH}/file{zlib.crc32(path.encode('utf-8', 'replace')) % 16}"


def tame(value, chance):
    """The value, with nothing in it that reaches out of the scratch folder, off this machine, or for all of its memory."""
    if isinstance(value, list):
        return [tame(item, chance) for item in value]
    if not isinstance(value, dict):
        return value
    tamed = {}
    for key, inner in value.items():
        if key == "path" and isinstance(inner, str):
            inner = within(inner)
        elif key == "server" and isinstance(inner, str):
            inner = "127.0.0.1:9"
        elif key == "url" and isinstance(inner, str):
            inner = "http://127.0.0.1:9/" if "://" in inner else inner
        elif key == "address" and isinstance(inner, str):
            inner = "127.0.0.1:0" if ":" in inner else inner[:1]
        elif key in ("size", "create") and isinstance(inner, int) and not isinstance(inner, bool):
            inner = min(inner, LARGEST)
        elif key in ("size", "create") and isinstance(inner, str):
            inner = "1MiB" if inner.strip()[:1].isdigit() and chance else inner
        elif key == "seconds" and isinstance(inner, int):
            inner = min(inner, 1)
        elif chance and key in FIELDS and isinstance(inner, (str, list)) and chance.random() < 0.5:
            inner = chance.choice(FIELDS[key])
        else:
            inner = tame(inner, chance)
        tamed[key] = inner
    return tamed


@schemathesis.hook
def before_call(_context, case, _kwargs):
    chance = random.Random(zlib.crc32(repr((case.method, case.path, case.body, case.path_parameters)).encode("utf-8", "replace")))
    makes_sense = case.meta is None or case.meta.generation.mode.is_positive
    names = KNOWN.get(case.path.split("/")[3] if case.path.count("/") >= 3 else "")
    for key in case.path_parameters or {}:
        if names and makes_sense and chance.random() < 0.5:
            case.path_parameters[key] = chance.choice(names)
    sensible = SENSIBLE.get(f"{case.method.upper()} {case.path}")
    if sensible is not None and makes_sense and isinstance(case.body, dict) and chance.random() < 0.2:
        number = str(chance.randrange(1000))
        case.body = json.loads(json.dumps(sensible).replace("N", number))
    elif isinstance(case.body, (dict, list)):
        case.body = tame(case.body, chance if makes_sense else None)


ANSWERS = collections.Counter()
DONE = set()


@schemathesis.hook
def after_call(_context, case, response):
    ANSWERS[response.status_code] += 1
    if response.status_code < 300:
        DONE.add((case.method, case.path))


@atexit.register
def tell():
    """How many answers there were of each status, and how many operations were done at least once, for `run` to judge."""
    with open(f"{SCRATCH}/answers", "w") as file:
        file.write(f"{len(DONE)}\n")
        file.write(" ".join(f"{status}:{count}" for status, count in sorted(ANSWERS.items())) + "\n")
        file.write("".join(f"{method} {path}\n" for method, path in sorted(DONE)))
