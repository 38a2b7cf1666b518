"""Writes and reads pictures with Pillow: `write FOLDER`, `break FOLDER`, `read FOLDER`."""

import io
import pathlib
import sys

from PIL import Image, ImageOps

task, folder = sys.argv[1], pathlib.Path(sys.argv[2])


def picture(width=61, height=43):
    out = Image.new("RGB", (width, height))
    out.putdata(
        [
            (x * 4 % 256, y * 5 % 256, 200 if (x // 5 + y // 3) % 2 else 40)
            for y in range(height)
            for x in range(width)
        ]
    )
    return out


def read():
    for path in folder.iterdir():
        if path.suffix in (".raw", ".ppm"):
            continue
        try:
            opened = Image.open(path)
            opened.load()
        except Exception:
            continue
        upright = ImageOps.exif_transpose(opened)
        if upright.mode in ("RGBA", "LA"):
            # Colours as they are stored; Pillow drops what is transparent in the same way.
            upright = upright.convert("RGBA")
        (folder / f"{path.name}.raw").write_bytes(upright.convert("RGB").tobytes())


def write():
    whole = picture()
    for number in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = number
        for kind in ("jpg", "png", "webp"):
            lossless = {"lossless": True} if kind == "webp" else {}
            whole.save(folder / f"turned-{number}.{kind}", exif=exif, **lossless)
    alpha = whole.convert("RGBA")
    alpha.putalpha(128)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        of = alpha if mode in ("RGBA", "LA") else whole
        of.convert(mode).save(folder / f"mode-{mode}.png")
    for mode in ("L", "RGB", "CMYK"):
        for progressive in (False, True):
            name = f"mode-{mode}-{progressive}.jpg"
            whole.convert(mode).save(folder / name, quality=95, progressive=progressive)
    for size in ((1, 1), (61, 43), (500, 3), (3, 500)):
        for quality in (10, 90):
            picture(*size).save(folder / f"lossy-{size[0]}x{size[1]}-{quality}.webp", quality=quality)
        picture(*size).save(folder / f"lossless-{size[0]}x{size[1]}.webp", lossless=True)
    alpha.save(folder / "alpha.webp", lossless=True, exact=True)
    whole.save(folder / "first.webp", save_all=True, append_images=[whole.rotate(90)], lossless=True)


def jpeg(**how):
    out = io.BytesIO()
    picture(160, 120).save(out, "JPEG", quality=90, **how)
    return out.getvalue()


def segments(data):
    """Marker, start and end of each segment before the first scan's data."""
    at = 2
    while data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        yield data[at + 1], at, at + 2 + length
        at += 2 + length
    length = int.from_bytes(data[at + 2 : at + 4], "big")
    yield 0xDA, at, at + 2 + length


def without(data, marker):
    for found, start, end in reversed(list(segments(data))):
        if found == marker:
            data = data[:start] + data[end:]
    return data


def break_():
    def put(name, data):
        (folder / f"{name}.jpg").write_bytes(data)

    for kind, data in (
        ("plain", jpeg()),
        ("progressive", jpeg(progressive=True)),
        ("restarts", jpeg(restart_marker_blocks=7)),
    ):
        parts = {marker: (start, end) for marker, start, end in segments(data)}
        sof = parts.get(0xC0) or parts[0xC2]
        scan = parts[0xDA][1]
        middle = (scan + len(data)) // 2
        put(f"{kind}-whole", data)
        put(f"{kind}-whole-tail", data + b"and more" * 9)
        put(f"{kind}-whole-zeros", data[: sof[0]] + bytes(9) + data[sof[0] :])
        put(f"{kind}-whole-fill", data[: sof[0]] + b"\xff" * 9 + data[sof[0] :])
        put(f"{kind}-whole-junk", data[: sof[0]] + b"junk" * 9 + data[sof[0] :])
        put(f"{kind}-whole-app", data[:2] + b"\xff\xe7\x00\x02" + data[2:])
        put(f"{kind}-whole-dnl", data[: sof[1]] + b"\xff\xdc\x00\x04\x00\x78" + data[sof[1] :])
        put(f"{kind}-whole-app-0", data[:2] + b"\xff\xe7\x00\x00" + data[2:])
        put(f"{kind}-app-long", data[:2] + b"\xff\xe7\xff\xff" + data[2:])
        put(f"{kind}-cut", data[:middle])
        put(f"{kind}-no-end", data[:-2])
        put(f"{kind}-header", data[: sof[0] + 5])
        put(f"{kind}-no-quant", without(data, 0xDB))
        put(f"{kind}-no-frame", without(data, data[sof[0] + 1]))
        put(f"{kind}-two-frames", data[: sof[1]] + data[sof[0] : sof[1]] + data[sof[1] :])
        precise = bytearray(data)
        precise[sof[0] + 4] = 12
        put(f"{kind}-precise", bytes(precise))
        none = bytearray(data)
        none[sof[0] + 5 : sof[0] + 9] = bytes(4)
        put(f"{kind}-no-pixels", bytes(none))
        two = bytearray(data)
        two[sof[0] + 9] = 2
        put(f"{kind}-two-components", bytes(two))
        empty = data[:2] + data[-2:]
        put(f"{kind}-empty", empty)
    plain = jpeg()
    start, scan = list(segments(plain))[-1][1:]
    put("plain-whole-no-tables", without(plain, 0xC4))
    sequence = bytearray(plain)
    sequence[scan - 2] = 64
    put("plain-whole-se-64", bytes(sequence))
    restarts = jpeg(restart_marker_blocks=7)
    at = [i for i in range(len(restarts) - 1) if restarts[i] == 0xFF and 0xD0 <= restarts[i + 1] <= 0xD7]
    put("restarts-doubled", restarts[: at[2]] + restarts[at[2] : at[2] + 2] + restarts[at[2] :])
    put("restarts-missing", restarts[: at[2]] + restarts[at[2] + 2 :])
    put("restarts-hole", restarts[: at[1] + 20] + restarts[at[3] - 20 :])
    put("restarts-zeros", restarts[: at[1] + 12] + bytes(at[3] - at[1] - 20) + restarts[at[3] - 8 :])


{"read": read, "write": write, "break": break_}[task]()
