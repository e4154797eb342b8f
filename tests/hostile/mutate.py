"""Files changed in the ways that find faults: bytes, members of archives, values of JSON."""

import io
import json
import random
import zipfile
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, -(10**9), 0.5, float("nan"), float("inf")),
    *(
        "",
        "x",
        "0",
        "-1",
        "nan",
        "../../etc/passwd",
        "/etc/passwd",
        "os:system",
        "\0",
        "\ud800",
        "a\nb",
    ),
    *([], {}, [[]], [None], {"": {}}, [1, 2, 3], {"name": "x"}, "=1+1", "</script>", "\x1b[2J"),
)
ODD_BYTES = (
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\n",
    b'"',
    b",",
    b"-1",
    b"9" * 25,
    b"nan",
    b"{",
    b"[",
)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """One of the ways, or two."""
    for _ in range(rng.choice((1, 1, 2))):
        ways = [_bytes, _bytes, _cut]
        if content[:2] == b"PK":
            ways += [_member] * 4
        if content[:1] in (b"{", b"["):
            ways += [_json] * 6
        content = rng.choice(ways)(content, rng)
    return content


def _bytes(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                changed[at:at] = rng.choice(ODD_BYTES)
            case 2:
                del changed[at : at + rng.choice((1, 4, 64))]
            case _:
                other = rng.randrange(len(changed) + 1)
                changed[at : at + 8] = changed[other : other + 8]
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _member(content: bytes, rng: random.Random) -> bytes:
    """A member of a zip archive changed, with a check sum that is right."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:
        return _bytes(content, rng)
    if not members:
        return content
    name = rng.choice(sorted(members))
    match rng.randrange(8):
        case 0:
            members[rng.choice(("../../up", "/abs", "x.npy", name.upper()))] = members.pop(name)
        case 1:
            del members[name]
        case _:
            members[name] = _bytes(members[name], rng)
    made = io.BytesIO()
    how = rng.choice(
        (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    )
    with zipfile.ZipFile(made, "w", how if rng.random() < 0.2 else zipfile.ZIP_STORED) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return made.getvalue()


def _json(content: bytes, rng: random.Random) -> bytes:
    """A value of a JSON file, or of a line of one, replaced, taken out or put elsewhere."""
    lines = content.split(b"\n")
    whole = len(lines) < 2 or lines[0] in (b"{", b"[")
    place = 0 if whole else rng.randrange(len(lines))
    try:
        value = json.loads(content if whole else lines[place])
    except (ValueError, RecursionError):
        return _bytes(content, rng)
    value = _changed(value, rng)
    text = json.dumps(value).encode()
    if whole:
        return text
    lines[place] = text
    return b"\n".join(lines)


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        if rng.random() < 0.1:
            return value[:at] + value[at + 1 :]
        return [*value[:at], _changed(value[at], rng), *value[at + 1 :]]
    return rng.choice(ODD_VALUES)
