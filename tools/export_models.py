#!/usr/bin/env python3
"""Export standard models to TorchScript and print the YAML that serves them.

Spillgate runs any TorchScript file through the module type `torchscript` (and detectors in the YOLO
layout through `detector`), so this script is a convenience, not a requirement. It needs Python with
torch, plus torchvision for its models or ultralytics for the YOLO family; Spillgate itself needs none
of them.

    tools/export_models.py resnet18 --weights resnet18.pth --out models/
    tools/export_models.py ssdlite320_mobilenet_v3_large --weights ssdlite.pth --out models/
    tools/export_models.py yolo --weights yolo11n.pt --out models/

Without --weights torchvision's models get random weights: right for measuring time, useless otherwise.
Nothing is downloaded.

What it writes is checked as a server checks it, by `spillgate validate` (--spillgate names the program): a model that cannot be
served is refused, and its file removed.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CLASSIFIERS = {
    # name: input side that its weights were trained at
    "resnet18": 224,
    "resnet50": 224,
    "mobilenet_v3_small": 224,
    "mobilenet_v3_large": 224,
    "efficientnet_b0": 224,
    "convnext_tiny": 224,
}
DETECTORS = {"ssdlite320_mobilenet_v3_large": 320}
YOLO = "yolo"
# Of ImageNet, in red, green, blue.
MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]


def need(module, why):
    """Import a module, or end with a message that says what to install."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        sys.exit(f"export_models: {why} needs the Python package \"{module}\" ({error}); "
                 f"install it with: pip install {module}")


def load_weights(torch, network, path):
    """Put the weights of a file into a network; a full checkpoint may hold them in a field."""
    if path is None:
        print("export_models: no --weights: random ones, right only for measuring time",
              file=sys.stderr)
        return
    state = torch.load(path, map_location="cpu", weights_only=True)
    for field in ("state_dict", "model", "model_state_dict"):
        if isinstance(state, dict) and field in state:
            state = state[field]
    try:
        network.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        first = str(error).splitlines()[0]
        sys.exit(f"export_models: {path} does not fit this model: {first}")


def write_labels(path, names):
    """Write the class names beside the model, where the modules look for them."""
    path.with_suffix(".labels").write_text("\n".join(names) + "\n", encoding="utf-8")


def save_traced(torch, network, example, path, other):
    """Trace, save, and check that the file agrees with the network at another batch size."""
    with torch.no_grad():
        traced = torch.jit.trace(network, example, check_trace=False)
        traced.save(str(path))
        difference = (torch.jit.load(str(path))(other) - network(other)).abs().max().item()
    if difference > 1e-2:
        sys.exit(f"export_models: {path}: the exported model differs from the original by "
                 f"{difference:.3g}; its trace depends on the input")


def check_labels(names, classes, where):
    """End where there are not as many names as classes."""
    if len(names) != classes:
        sys.exit(f"export_models: {where} has {len(names)} class names, and the model {classes} classes; one a line is needed")


def check_served(program, path, yaml):
    """Let spillgate check the model in the pipeline that serves it; end where it cannot be served."""
    found = shutil.which(program)
    if found is None:
        print(f"export_models: not checked whether {path} can be served: there is no {program} on the path (--spillgate)",
              file=sys.stderr)
        return
    name = yaml.split(":", 1)[0].strip()
    output = "boxes" if "op: detector" in yaml else "labels"
    pipeline = f"name: check\nslo: 10s\nmodules:\n{yaml}\noutputs: {{ {output}: ${name}.{output} }}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=path.parent, encoding="utf-8") as file:
        file.write(pipeline)
        file.flush()
        checked = subprocess.run([found, "validate", file.name], capture_output=True, text=True)
        said = (checked.stderr + checked.stdout).replace(file.name, "its pipeline")
    if checked.returncode != 0:
        path.unlink()
        path.with_suffix(".labels").unlink(missing_ok=True)
        sys.exit(f"export_models: {path} could not be served, and was removed: {said.strip()}")


def classifier_yaml(path, side):
    return f"""  classify:
    op: torchscript
    model: {path.name}
    inputs: {{ image: $source.frame }}
    options:
      size: [{side}, {side}]
      fit: stretch
      mean: {MEAN}
      std: {STD}
      decode: classes            # give class names in {path.with_suffix('.labels').name}, one a line
      top: 5"""


def export_classifier(args, path):
    torch = need("torch", args.model)
    models = need("torchvision.models", args.model)
    side = args.input or CLASSIFIERS[args.model]
    network = getattr(models, args.model)(weights=None, num_classes=args.classes)
    load_weights(torch, network, args.weights)
    network.eval()
    shape = (3, side, side)
    save_traced(torch, network, torch.rand(2, *shape), path, torch.rand(3, *shape))
    if args.labels:
        names = Path(args.labels).read_text(encoding="utf-8").split("\n")
    else:
        names = [f"class {i}" for i in range(args.classes)]
    names = [name.strip() for name in names if name.strip()]
    check_labels(names, args.classes, args.labels)
    write_labels(path, names)
    return classifier_yaml(path, side)


def export_detector(args, path):
    """Without torchvision's own suppression: its operator is not part of libtorch. The module does that."""
    torch = need("torch", args.model)
    detection = need("torchvision.models.detection", args.model)
    image_list = need("torchvision.models.detection.image_list", args.model)
    side = args.input or DETECTORS[args.model]
    network = getattr(detection, args.model)(
        weights=None, weights_backbone=None, num_classes=args.classes)
    load_weights(torch, network, args.weights)
    network.eval()

    class YoloLayout(torch.nn.Module):
        """A batch to [batch, 4 + classes, n]: centres and sizes in pixels, then scores."""

        def __init__(self):
            super().__init__()
            self.backbone, self.head = network.backbone, network.head
            self.weights = network.box_coder.weights
            mean, std = network.transform.image_mean, network.transform.image_std
            self.register_buffer("mean", torch.tensor(mean).reshape(1, 3, 1, 1))
            self.register_buffer("std", torch.tensor(std).reshape(1, 3, 1, 1))
            example = torch.zeros(1, 3, side, side)
            features = list(self.backbone(example).values())
            images = image_list.ImageList(example, [(side, side)])
            corners = network.anchor_generator(images, features)[0]
            size = corners[:, 2:] - corners[:, :2]
            self.register_buffer("anchor_size", size)
            self.register_buffer("anchor_centre", corners[:, :2] + size / 2)

        def forward(self, images):
            features = list(self.backbone((images - self.mean) / self.std).values())
            out = self.head(features)
            boxes = out["bbox_regression"]
            wx, wy, ww, wh = self.weights
            place = boxes[..., :2] / torch.tensor([wx, wy]) * self.anchor_size + self.anchor_centre
            size = (boxes[..., 2:] / torch.tensor([ww, wh])).clamp(max=4.0).exp() * self.anchor_size
            # Class 0 is background in torchvision.
            scores = out["cls_logits"].softmax(-1)[..., 1:]
            return torch.cat([place, size, scores], dim=-1).transpose(1, 2)

    shape = (3, side, side)
    with torch.no_grad():
        wrapped = YoloLayout().eval()
    save_traced(torch, wrapped, torch.rand(2, *shape), path, torch.rand(3, *shape))
    write_labels(path, [f"class {i}" for i in range(1, args.classes)])
    return f"""  detect:
    op: detector
    variants: [{{ model: {path.name}, input: {side} }}]
    inputs: {{ image: $source.frame }}
    options: {{ layout: yolo, confidence: 0.4 }}   # write the class names into {path.with_suffix('.labels').name}"""


def export_yolo(args, path):
    if args.weights is None:
        sys.exit("export_models: yolo needs --weights FILE.pt")
    torch = need("torch", "yolo")
    ultralytics = need("ultralytics", "yolo")
    side = args.input or 640
    model = ultralytics.YOLO(args.weights)
    if model.task != "detect":
        sys.exit(f"export_models: {args.weights} is of the task {model.task!r}, which no module of Spillgate serves; "
                 "only detection models are")
    network = model.model.float().eval()
    for part in network.modules():
        # The head's export form: one tensor, no state kept between sizes.
        if hasattr(part, "export"):
            part.export = True
            part.format = "torchscript"
            part.dynamic = True
    shape = (3, side, side)
    with torch.no_grad():
        # The first run lays out the grid for this size.
        output = network(torch.rand(1, *shape))
        if not isinstance(output, torch.Tensor) or output.dim() != 3:
            sys.exit("export_models: these weights give no single [batch, rows, columns]; "
                     "only detection models are supported")
        layout = "xyxy" if output.shape[2] == 6 else "yolo"
        traced = torch.jit.trace(network, torch.rand(2, *shape), check_trace=False, strict=False)
        traced.save(str(path))
        torch.jit.load(str(path))(torch.rand(3, *shape))
    names = model.names
    write_labels(path, [names[i] for i in range(len(names))])
    return f"""  detect:
    op: detector
    variants: [{{ model: {path.name}, input: {side} }}]
    inputs: {{ image: $source.frame }}
    options: {{ layout: {layout}, confidence: 0.4, iou: 0.5 }}
    # vehicles: and people: in options say which classes go to $detect.vehicles and $detect.people"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[*CLASSIFIERS, *DETECTORS, YOLO])
    parser.add_argument("--weights", metavar="FILE",
                        help="state_dict for torchvision's models, .pt for yolo")
    parser.add_argument("--out", metavar="FOLDER", default="models", type=Path,
                        help="where to write (default: models)")
    parser.add_argument("--input", metavar="PIXELS", type=int,
                        help="side of the square input (default: the model's own)")
    parser.add_argument("--classes", metavar="N", type=int,
                        help="classes of the weights (default: 1000, or 91 for detectors)")
    parser.add_argument("--labels", metavar="FILE", help="class names of a classifier, one a line")
    parser.add_argument("--spillgate", metavar="PROGRAM", default="spillgate",
                        help="the program that checks what was written (default: spillgate, on the path)")
    args = parser.parse_args()
    if args.classes is None:
        args.classes = 91 if args.model in DETECTORS else 1000
    if args.weights is not None and not Path(args.weights).is_file():
        sys.exit(f"export_models: {args.weights}: no such file")
    args.out.mkdir(parents=True, exist_ok=True)
    name = Path(args.weights).stem if args.model == YOLO and args.weights else args.model
    path = args.out / f"{name}.pt"
    if args.weights is not None and path.resolve() == Path(args.weights).resolve():
        path = args.out / f"{name}.torchscript.pt"
    if args.model in CLASSIFIERS:
        yaml = export_classifier(args, path)
    elif args.model in DETECTORS:
        yaml = export_detector(args, path)
    else:
        yaml = export_yolo(args, path)
    check_served(args.spillgate, path, yaml)
    print(f"# wrote {path}; for `modules:` of a pipeline file in {path.parent}/ (in another folder, put the way to it "
          "before the model's name: paths are relative to the pipeline file):")
    print(yaml)


if __name__ == "__main__":
    main()
