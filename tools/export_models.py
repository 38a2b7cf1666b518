#!/usr/bin/env python3
"""Export models of torchvision, timm, Ultralytics and Hugging Face to ONNX or TorchScript, and print the YAML that serves them.

Spillgate runs ONNX and TorchScript files of any origin and needs none of these packages. What this script writes says of itself what it is:
its classes, its input, and how its output is decoded.

    tools/export_models.py torchvision resnet18 --weights resnet18.pth
    tools/export_models.py torchvision fasterrcnn_resnet50_fpn --weights fasterrcnn.pth --input 640
    tools/export_models.py timm vit_tiny_patch16_224 --weights vit.safetensors --embed
    tools/export_models.py ultralytics yolo11n-seg.pt --format torchscript
    tools/export_models.py huggingface folder/of/detr

The model is a name of torchvision or timm with --weights FILE; a .pt file of Ultralytics; a folder of Hugging Face (config.json, weights,
preprocessor_config.json) or a name on its hub (timm: hf-hub:NAME), and then it is downloaded. Nothing else is ever downloaded. With --random
the weights are random, and the model may be a .yaml file of Ultralytics: right for measuring time, useless otherwise.

Written into ONNX as metadata_props, into TorchScript as the extra file config.txt (JSON):
  names {"0": "person", ...}, task (detect, segment, pose, classify, embed), stride, imgsz [height, width], batch: as Ultralytics writes them;
  head: yolo, yolov5, nms, ssd, detr, lists, classes-softmax, classes-sigmoid, embedding (in Ultralytics' own files its word: Detect, Pose, ...);
  mean, std: three numbers each, of channels from 0 to 1; fit: stretch, letterbox or crop; crop: the part of the shorter side; color: rgb or bgr.

What it writes is checked as a server checks it, by `spillgate validate` (--spillgate names the program): a model that cannot be
served is refused, and its file removed.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

try:
    import torch
except ImportError:
    torch = None  # `main` says what to install.

# Of a network that takes channels from 0 to 1 as they are.
UNIT = {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}
SEED = 0
# Greatest difference between a number of an exported model and the original's; part of a DETR's numbers that may be of other queries.
TOLERANCE, QUERIES_APART = 1e-2, 0.3
# Of a pipeline: the module's name, its operator, its output.
SERVED = {"classify": ("classify", "classifier", "labels"), "embed": ("embed", "embedder", "embeddings")}
DETECTED = ("detect", "detector", "boxes")
# The part of a model of pictures and text that takes pictures.
PICTURES = {"clip": "CLIPVisionModelWithProjection", "clip_vision_model": "CLIPVisionModelWithProjection",
            "siglip": "SiglipVisionModel", "siglip2": "Siglip2VisionModel"}


def fail(message):
    sys.exit(f"export_models: {message}")


def first_line(error):
    return f"{error}\n{type(error).__name__}".strip().splitlines()[0]


def need(module, why):
    """Import a module, or end with a message that says what to install."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        package = module.split(".")[0]
        fail(f"{why} needs the Python package \"{package}\" ({error}); install it with: pip install {package}")


@contextlib.contextmanager
def quiet():
    """Hides what the exporters print; errors are kept."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def load_weights(network, args):
    """Put the weights of a file into a network; a full checkpoint may hold them in a field."""
    if args.random:
        return
    if args.weights is None:
        fail(f"{args.model} needs --weights FILE (its state_dict, .pth or .safetensors), or --random to measure time alone")
    try:
        if Path(args.weights).suffix == ".safetensors":
            state = need("safetensors.torch", args.weights).load_file(args.weights)
        else:
            state = torch.load(args.weights, map_location="cpu", weights_only=True)
        for field in ("state_dict", "model", "model_state_dict"):
            if isinstance(state, dict) and field in state:
                state = state[field]
        network.load_state_dict(state)
    except Exception as error:  # noqa: BLE001: a foreign file fails in many ways, and each is the user's to know
        fail(f"{args.weights} does not fit {args.model} with {args.classes} classes: {first_line(error)}")


def class_names(args, known):
    """Names by index: of --labels, else of the library where it knows as many, else numbers."""
    if args.labels:
        names = [line.strip() for line in Path(args.labels).read_text(encoding="utf-8").splitlines() if line.strip()]
        if len(names) != args.classes:
            fail(f"{args.labels} has {len(names)} class names, and the model {args.classes} classes; one a line is needed")
        return names
    return list(known) if known and len(known) == args.classes else [f"class {i}" for i in range(args.classes)]


class Export:
    """A network that takes [batch, 3, height, width], and all that its file will say."""

    def __init__(self, network, outputs, size, meta, lists=False):
        """`outputs` are names. With `lists` the batch is one, and the outputs have no axis for it."""
        self.network, self.outputs, self.size, self.meta, self.lists = network.eval(), outputs, size, meta, lists

    def save(self, path, args):
        """Writes the file, and ends where it does not compute what the network does."""
        if self.lists and (args.format == "torchscript" or (args.batch or 1) != 1):
            fail(f"{args.model} suppresses overlaps by itself, picture by picture, with an operator that libtorch lacks; "
                 "leave --batch and --format out")
        batch = 1 if self.lists else args.batch
        meta = {**self.meta, "imgsz": list(self.size), "batch": batch or 1}
        generator = torch.Generator().manual_seed(SEED)
        # Two: of one, the exporter takes the batch for fixed.
        example = torch.rand(batch or 2, 3, *self.size, generator=generator)
        other = torch.rand(batch or 3, 3, *self.size, generator=generator)
        ways = [self.traced] if args.format == "torchscript" else [self.onnx, self.traced_onnx][self.lists:]
        for way in ways:
            try:
                with torch.no_grad(), quiet():
                    way(example, path, meta, batch is None)
                    wrong = self.wrong(torch.jit.load(str(path)) if args.format == "torchscript" else onnx_session(path), other)
            except Exception as error:  # noqa: BLE001: exporters fail in many ways, and the next one may not
                wrong = first_line(error)
            if wrong is None:
                return
            path.unlink(missing_ok=True)
        fail(f"{args.model} cannot be exported to {args.format}: {wrong}" + ("" if batch else "; --batch 1 may help"))

    def traced(self, example, path, meta, _free):
        traced = torch.jit.trace(self.network, example, check_trace=False, strict=False)
        torch.jit.save(traced, str(path), _extra_files={"config.txt": json.dumps(meta)})

    def onnx(self, example, path, meta, free):
        shapes = ({0: torch.export.Dim("batch")},) if free else None
        torch.onnx.export(self.network, (example,), str(path), dynamo=True, external_data=False, dynamic_shapes=shapes,
                          input_names=["images"], output_names=self.outputs)
        write_metadata(path, meta)

    def traced_onnx(self, example, path, meta, free):
        """By torch's older exporter, which takes more networks."""
        of = {"images": "batch", **dict.fromkeys(self.outputs, "batch")} if free else {}
        axes = {name: {0: axis} for name, axis in (dict.fromkeys(self.outputs, "objects") if self.lists else of).items()}
        torch.onnx.export(self.network, (example,), str(path), dynamo=False, dynamic_axes=axes,
                          input_names=["images"], output_names=self.outputs)
        write_metadata(path, meta)

    def wrong(self, run, pictures):
        """What the file does not compute as the network does, or nothing."""
        got, wanted = (list(found) if isinstance(found, (tuple, list)) else [found] for found in (run(pictures), self.network(pictures)))
        for name, a, b in zip(self.outputs, got, wanted):
            if self.lists:
                break  # A list may be longer by an object at the threshold.
            if a.shape != b.shape:
                return f"the shape of {name} is {list(a.shape)} for {len(pictures)} pictures, not {list(b.shape)}"
            if self.meta["head"] == "detr":  # Queries of nearly the same score change places.
                a, b = a.sort(1).values, b.sort(1).values
            far = ((a - b).abs() > TOLERANCE).float().mean().item()
            if far > (QUERIES_APART if self.meta["head"] == "detr" else 0):
                return f"{name} differs from the original's in {far:.1%} of its numbers; the trace depends on the input"
        return None


def onnx_session(path):
    """Runs a file."""
    onnxruntime = need("onnxruntime", "the ONNX format")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda pictures: [torch.as_tensor(o) for o in session.run(None, {session.get_inputs()[0].name: pictures.numpy()})]


def write_metadata(path, meta):
    """Adds to an ONNX file what it does not say yet."""
    onnx = need("onnx", "the ONNX format")
    model = onnx.load(str(path))
    there = {entry.key for entry in model.metadata_props}
    for key, value in meta.items():
        if key not in there:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            model.metadata_props.add(key=key, value=text)
    onnx.save(model, str(path))


def cropped(part):
    """The middle of a picture, of which its shorter side shows this part."""
    return {"fit": "crop", "crop": round(min(part, 1.0), 6)}


def by_index(names):
    return {str(i): str(name) for i, name in enumerate(names)}


def torchvision_model(args):
    models = need("torchvision.models", args.model)
    detection = need("torchvision.models.detection", args.model)
    detectors, classifiers = models.list_models(detection), models.list_models(models)
    if args.model not in detectors + classifiers:
        fail(f"torchvision has no model {args.model}; it has {', '.join(classifiers + detectors)}")
    known = models.get_model_weights(args.model).DEFAULT
    categories = known.meta.get("categories")
    args.classes = args.classes or len(categories)
    torch.manual_seed(SEED)
    if args.model in detectors:
        return torchvision_detector(args, detection, class_names(args, categories))
    if args.embed:
        fail("embedders come from timm or Hugging Face, where the part before the classes is known: timm NAME --embed")
    network = models.get_model(args.model, weights=None, num_classes=args.classes)
    load_weights(network, args)
    crop = known.transforms()
    side = args.input or crop.crop_size[0]
    meta = {"names": by_index(class_names(args, categories)), "task": "classify", "stride": 1, "head": "classes-softmax",
            "mean": list(crop.mean), "std": list(crop.std), **cropped(crop.crop_size[0] / crop.resize_size[0]), "color": "rgb"}
    return Export(network, ["logits"], (side, side), meta)


def torchvision_detector(args, detection, names):
    """SSD gives raw boxes and scores, and Spillgate suppresses; the others list what they found."""
    if "mask" in args.model or "keypoint" in args.model:
        fail(f"{args.model} has masks or points; export the detector it is built on, or a model of Ultralytics")
    is_ssd = args.model.startswith("ssd")
    options = {"weights": None, "weights_backbone": None, "num_classes": args.classes}
    if is_ssd:
        network = getattr(detection, args.model)(**options).eval()
        side = network.transform.fixed_size[0]
        if args.input not in (None, side):
            fail(f"{args.model} has an input of {side} and no other; leave --input out")
    else:
        side = args.input or (320 if "_320_" in args.model else 800)
        network = getattr(detection, args.model)(**options, min_size=side, max_size=side).eval()
    load_weights(network, args)
    meta = {"names": by_index(names), "task": "detect", "stride": 32, "fit": "stretch", "color": "rgb"}
    if is_ssd:
        normal = {"mean": list(network.transform.image_mean), "std": list(network.transform.image_std)}
        return Export(ssd_outputs(network, side), ["boxes", "scores"], (side, side), {**meta, "head": "ssd", **normal})

    class Lists(torch.nn.Module):
        """The first picture's boxes in pixels of the input, labels (0 is the background and does not occur), scores."""

        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, images):
            found = self.network([images[0]])[0]
            return found["boxes"], found["labels"], found["scores"]

    return Export(Lists(), ["boxes", "labels", "scores"], (side, side), {**meta, "head": "lists", **UNIT}, lists=True)


def ssd_outputs(network, side):
    """A torchvision SSD as boxes [batch, n, 4] (corners, 0 to 1) and scores [batch, n, classes] (the background first)."""
    image_list = need("torchvision.models.detection.image_list", "SSD")

    class Outputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = network.backbone, network.head
            with torch.no_grad():
                example = torch.zeros(1, 3, side, side)
                features = list(self.backbone(example).values())
                anchors = network.anchor_generator(image_list.ImageList(example, [(side, side)]), features)[0]
            size = anchors[:, 2:] - anchors[:, :2]
            self.register_buffer("size", size)
            self.register_buffer("centre", anchors[:, :2] + size / 2)
            self.register_buffer("scale", torch.tensor(network.box_coder.weights))
            self.longest = network.box_coder.bbox_xform_clip

        def forward(self, images):
            out = self.head(list(self.backbone(images).values()))
            moved = out["bbox_regression"] / self.scale
            centre = moved[..., :2] * self.size + self.centre
            half = moved[..., 2:].clamp(max=self.longest).exp() * self.size / 2
            return torch.cat([centre - half, centre + half], -1) / side, out["cls_logits"].softmax(-1)

    return Outputs().eval()


def timm_model(args):
    timm = need("timm", args.model)
    data = need("timm.data", args.model)
    # Such a name brings its weights: a folder, or the hub that the user asked for.
    own_weights = args.model.startswith(("hf-hub:", "hf_hub:", "local-dir:")) and not args.random
    torch.manual_seed(SEED)
    options = {"num_classes": args.classes} if args.classes else {}
    try:
        with quiet():
            network = timm.create_model(args.model, pretrained=own_weights, **options)
    except Exception as error:  # noqa: BLE001
        fail(f"timm cannot make {args.model}: {first_line(error)}")
    args.classes = network.num_classes
    if not own_weights:
        load_weights(network, args)
    config = data.resolve_model_data_config(network)
    height, width = (args.input, args.input) if args.input else config["input_size"][1:]
    if (height, width) != tuple(config["input_size"][1:]) and network.pretrained_cfg.get("fixed_input_size"):
        fail(f"{args.model} has an input of {config['input_size'][1]} and no other; leave --input out")
    fit = cropped(config["crop_pct"]) if config["crop_mode"] == "center" else {"fit": "stretch"}
    meta = {"stride": 1, "mean": list(config["mean"]), "std": list(config["std"]), **fit, "color": "rgb"}
    if args.embed:
        network.reset_classifier(0)
        return Export(network, ["embeds"], (height, width), {**meta, "task": "embed", "head": "embedding"})
    known = network.pretrained_cfg.get("label_names")
    if not known and (subset := data.infer_imagenet_subset(network)):
        known = data.ImageNetInfo(subset).label_descriptions()
    meta = {"names": by_index(class_names(args, known)), "task": "classify", **meta, "head": "classes-softmax"}
    return Export(network, ["logits"], (height, width), meta)


def huggingface_model(args):
    transformers = need("transformers", args.model)
    if args.weights or args.classes or args.labels:
        fail("a model of Hugging Face brings its weights and class names: leave --weights, --classes and --labels out")
    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(args.model)
            processor = transformers.AutoImageProcessor.from_pretrained(args.model)
    except Exception as error:  # noqa: BLE001
        fail(f"{args.model} is no folder with config.json and preprocessor_config.json, and no model of the hub that can be reached: "
             f"{first_line(error)}")
    architecture = (getattr(config, "architectures", None) or [""])[0]
    if args.embed or not architecture or architecture.endswith(("Model", "WithProjection")):
        task, fields, kind = "embed", ["embeds"], getattr(transformers, PICTURES.get(config.model_type, "AutoModel"))
    elif architecture.endswith("ForObjectDetection"):
        task, fields, kind = "detect", ["logits", "pred_boxes"], transformers.AutoModelForObjectDetection
    elif architecture.endswith("ForImageClassification"):
        task, fields, kind = "classify", ["logits"], transformers.AutoModelForImageClassification
    else:
        fail(f"{args.model} is a {architecture}, which no module of Spillgate serves; --embed gives its features")
    torch.manual_seed(SEED)
    try:
        with quiet():
            if args.random:
                config = getattr(config, "vision_config", config)
                network = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
            else:
                network = kind.from_pretrained(args.model)
    except Exception as error:  # noqa: BLE001
        fail(f"{args.model}: no weights can be loaded ({first_line(error)}); with --random they are random, to measure time alone")

    class Outputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, images):
            found = self.network(pixel_values=images)
            if task != "embed":
                return tuple(getattr(found, field) for field in fields)
            pooled = [getattr(found, field, None) for field in ("image_embeds", "pooler_output")]
            return (next((p.flatten(1) for p in pooled if p is not None), found.last_hidden_state[:, 0]),)

    size, fit = processor_size(args, processor)
    if not processor.do_rescale or abs(processor.rescale_factor * 255 - 1) > 1e-3:
        fail(f"{args.model} does not want pixels divided by 255 first (its preprocessor_config.json), which its file could not say")
    normal = {"mean": list(processor.image_mean), "std": list(processor.image_std)} if processor.do_normalize else UNIT
    meta = {"task": task, "stride": 1, **normal, **fit, "color": "rgb"}
    if task == "embed":
        meta["head"] = "embedding"
    else:
        labels = network.config.id2label
        meta["names"] = by_index(labels[i] for i in sorted(labels))
        several = getattr(network.config, "problem_type", None) == "multi_label_classification"
        meta["head"] = "detr" if task == "detect" else "classes-sigmoid" if several else "classes-softmax"
    return Export(Outputs(), fields, size, meta)


def processor_size(args, processor):
    """Height and width of the input, and how a picture gets there."""
    size = processor.size if not isinstance(processor.size, int) else {"shortest_edge": processor.size}
    height, width = size.get("height") or size.get("shortest_edge"), size.get("width") or size.get("shortest_edge")
    if not height or not width:
        fail(f"{args.model}: its preprocessor_config.json names no size that is known ({size})")
    fit = {"fit": "stretch"}
    if getattr(processor, "do_center_crop", False):
        inner = processor.crop_size["height"], processor.crop_size["width"]
        fit = cropped(inner[0] / height) if size.get("shortest_edge") else fit
        height, width = inner
    return ((args.input, args.input) if args.input else (height, width)), fit


def export_ultralytics(args, path):
    """Ultralytics' own exporter writes file and metadata; what it leaves out is added. Gives the task."""
    os.environ.update(YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true")
    ultralytics = need("ultralytics", args.model)
    if args.weights or args.classes or args.labels or args.embed:
        fail("a .pt file of Ultralytics is the model and has its classes: leave --weights, --classes, --labels and --embed out")
    is_config = args.model.endswith(".yaml")
    if is_config != args.random:
        fail(f"{args.model}: weights are in a .pt file, and a .yaml file has none: that one needs --random, to measure time alone")
    named = need("ultralytics.utils.checks", args.model).check_yolov5u_filename(args.model)
    if not is_config and not Path(named).is_file():
        fail(f"{named}: no such file; it is not downloaded")
    torch.manual_seed(SEED)
    kind = ultralytics.RTDETR if Path(args.model).stem.lower().startswith("rtdetr") else ultralytics.YOLO
    with quiet():
        model = kind(args.model)
    if model.task not in ("detect", "segment", "pose", "classify"):
        fail(f"{args.model} is of the task {model.task}, which no module of Spillgate serves; detect, segment, pose and classify are")
    # The exporter writes beside this file.
    model.model.pt_path = str(path.with_suffix(".pt"))
    side = args.input or (224 if model.task == "classify" else 640)
    try:
        with quiet():
            made = Path(model.export(format=args.format, imgsz=side, batch=args.batch or 1, dynamic=args.batch is None))
    except Exception as error:  # noqa: BLE001
        fail(f"ultralytics cannot export {args.model}: {first_line(error)}")
    shutil.move(made, path)
    stretched = "RTDETR" in type(model.model.model[-1]).__name__
    fit = cropped(1.0) if model.task == "classify" else {"fit": "stretch" if stretched else "letterbox"}
    more = {**UNIT, **fit, "color": "rgb"}
    if args.format == "onnx":
        write_metadata(path, more)
    else:
        extra = {"config.txt": ""}
        with quiet():
            traced = torch.jit.load(str(path), _extra_files=extra)
            torch.jit.save(traced, str(path), _extra_files={"config.txt": json.dumps({**json.loads(extra["config.txt"]), **more})})
    return model.task


def yaml_of(path, task):
    name, op, _ = SERVED.get(task, DETECTED)
    return f"  {name}: {{ op: {op}, model: {path.name}, inputs: {{ image: $source.frame }} }}"


def check_served(program, path, task):
    """Let spillgate check the model in the pipeline that serves it; end where it cannot be served."""
    found = shutil.which(program)
    if found is None:
        print(f"export_models: {path} is not checked: there is no {program} on the path (--spillgate)", file=sys.stderr)
        return
    name, _, output = SERVED.get(task, DETECTED)
    pipeline = f"name: check\nslo: 10s\nmodules:\n{yaml_of(path, task)}\noutputs: {{ {output}: ${name}.{output} }}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=path.parent, encoding="utf-8") as file:
        file.write(pipeline)
        file.flush()
        checked = subprocess.run([found, "validate", file.name], capture_output=True, text=True)
        said = (checked.stderr + checked.stdout).replace(file.name, "its pipeline")
    if checked.returncode != 0:
        path.unlink()
        fail(f"{path} could not be served, and was removed: {said.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    makers = {"torchvision": torchvision_model, "timm": timm_model, "huggingface": huggingface_model}
    parser.add_argument("library", choices=[*makers, "ultralytics"])
    parser.add_argument("model", help="a name, a .pt file, a folder: see above")
    parser.add_argument("--weights", metavar="FILE", help="state_dict of torchvision or timm (.pth, .pt, .safetensors)")
    parser.add_argument("--random", action="store_true", help="random weights with a fixed seed")
    parser.add_argument("--embed", action="store_true", help="the part before the classes, as an embedder (timm, huggingface)")
    parser.add_argument("--format", choices=["onnx", "torchscript"], default="onnx")
    parser.add_argument("--out", metavar="FOLDER", default="models", type=Path, help="where to write (default: models)")
    parser.add_argument("--input", metavar="PIXELS", type=int, help="side of the square input (default: the model's own)")
    parser.add_argument("--batch", metavar="N", type=int, help="fix the batch (default: free)")
    parser.add_argument("--classes", metavar="N", type=int, help="classes of the weights (default: as published)")
    parser.add_argument("--labels", metavar="FILE", help="class names, one a line")
    parser.add_argument("--spillgate", metavar="PROGRAM", default="spillgate", help="checks what was written (default: on the path)")
    args = parser.parse_args()
    for option, value in vars(args).items():
        if option in ("input", "batch", "classes") and value is not None and value < 1:
            fail(f"--{option} {value}: at least 1 is needed")
        if option in ("weights", "labels") and value and not Path(value).is_file():
            fail(f"--{option} {value}: no such file")
    slim = ["onnxslim"] if args.library == "ultralytics" else []
    for module in ["torch", *(["onnx", "onnxscript", "onnxruntime", *slim] if args.format == "onnx" else [])]:
        need(module, f"the format {args.format}")
    args.out.mkdir(parents=True, exist_ok=True)
    stem = Path(args.model.split(":")[-1]).resolve().name.removesuffix(".pt").removesuffix(".yaml")
    path = args.out / f"{stem}.{args.format}"
    if args.library == "ultralytics":
        task = export_ultralytics(args, path)
    else:
        made = makers[args.library](args)
        made.save(path, args)
        task = made.meta["task"]
    check_served(args.spillgate, path, task)
    print(f"# wrote {path}; for `modules:` of a pipeline file in {path.parent}/ (in another folder, put the way to it "
          "before the model's name: paths are relative to the pipeline file):")
    print(yaml_of(path, task))


if __name__ == "__main__":
    main()
