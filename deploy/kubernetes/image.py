#!/usr/bin/env python3
"""Write a container image as an archive (docker-archive), without a container engine or a registry.

    image.py OUT.tar TAG [--env NAME=VALUE] [--workdir FOLDER] [--user UID] [--command WORD]
             [--layer] [--libraries PROGRAM] [PATH_IN_IMAGE=LOCAL_PATH]... -- ENTRYPOINT...

`ctr images import`, `docker load` and `podman load` take it. Each --layer begins another layer: what rarely changes goes
into the first ones, which a node then keeps. A folder is copied whole, links as what they lead to. --libraries adds the
shared libraries that `ldd` names for a program, at their paths here, except those that are placed elsewhere.

The same content gives the same archive: sorted names, no owners, one date. No file depends on who runs the container:
all are readable by anyone, and there are no users in it.
"""
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile


def main(args):
    cut = args.index("--") if "--" in args else len(args)
    options, entrypoint = args[:cut], args[cut + 1:]
    if len(options) < 3:
        sys.exit(__doc__)
    out, tag = options.pop(0), options.pop(0)
    layers, needed, env, command, workdir, user = [{}], [], [], [], "/", ""
    while options:
        word = options.pop(0)
        if word == "--layer":
            layers.append({})
        elif word == "--env":
            env.append(options.pop(0))
        elif word == "--workdir":
            workdir = options.pop(0)
        elif word == "--user":
            user = options.pop(0)
        elif word == "--command":
            command.append(options.pop(0))
        elif word == "--libraries":
            needed.append((layers[-1], libraries(options.pop(0))))
        elif not word.startswith("-") and "=" in word:
            inside, local = word.split("=", 1)
            layers[-1].update(tree(inside, local))
        else:
            sys.exit(f"error: {word!r} is neither an option nor PATH_IN_IMAGE=LOCAL_PATH")
    placed = {local for files in layers for local in files.values()}
    for layer, found in needed:
        layer.update({path: local for path, local in found.items() if local not in placed})
    write(out, tag, [files for files in layers if files], {
        "Entrypoint": entrypoint, "Cmd": command, "Env": env, "WorkingDir": workdir, "User": user,
    })


def tree(inside, local):
    """What lies at a path of this machine, by where it is to lie in the image."""
    if not os.path.isdir(local):
        return {inside: os.path.realpath(local)}
    found = {}
    for folder, _, names in os.walk(local, followlinks=True):
        for name in names:
            path = os.path.join(folder, name)
            found[os.path.join(inside, os.path.relpath(path, local))] = os.path.realpath(path)
    return found


def libraries(program):
    """The shared libraries that a program loads, by their paths."""
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    if "not found" in said:
        sys.exit(f"error: a library of {program} is missing:\n{said}")
    return {path: os.path.realpath(path) for path in re.findall(r"(/\S+) \(0x", said)}


def write_layer(path, files):
    """Writes a layer, and returns its SHA-256."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as layer:
        folders = set()
        for inside in sorted(files):
            name = inside.lstrip("/")
            parts = name.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                folder = "/".join(parts[:depth])
                if folder not in folders:
                    folders.add(folder)
                    info = tarfile.TarInfo(folder)
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    layer.addfile(info)
            local = files[inside]
            mode = 0o755 if os.stat(local).st_mode & 0o111 else 0o644
            with open(local, "rb") as content:
                add(layer, name, content, os.path.getsize(local), mode)
    with open(path, "rb") as layer:
        return hashlib.file_digest(layer, "sha256").hexdigest()


def write(out, tag, layers, config):
    """Writes the archive beside, and puts it in place once it is whole."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(out)), prefix=".image-") as folder:
        digests = []
        for files in layers:
            part = os.path.join(folder, "layer")
            digests.append(write_layer(part, files))
            os.rename(part, os.path.join(folder, digests[-1]))
        description = json.dumps({
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }).encode()
        name = hashlib.sha256(description).hexdigest() + ".json"
        manifest = [{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar" for digest in digests]}]
        whole = os.path.join(folder, "archive")
        with tarfile.open(whole, "w", format=tarfile.GNU_FORMAT) as archive:
            add(archive, name, io.BytesIO(description), len(description))
            text = json.dumps(manifest).encode()
            add(archive, "manifest.json", io.BytesIO(text), len(text))
            for digest in digests:
                part = os.path.join(folder, digest)
                with open(part, "rb") as layer:
                    add(archive, f"{digest}.tar", layer, os.path.getsize(part))
        os.rename(whole, out)


def add(archive, name, content, size, mode=0o644):
    """Adds a file: no owner, no date."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, mode
    archive.addfile(info, content)


if __name__ == "__main__":
    main(sys.argv[1:])
