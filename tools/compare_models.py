#!/usr/bin/env python3
"""Compare what Spillgate answers for models of torchvision, timm, Ultralytics and Hugging Face with what the libraries themselves answer.

    tools/compare_models.py --spillgate target/debug/spillgate            # all architectures
    tools/compare_models.py --spillgate target/debug/spillgate yolo11n ssdlite320

Each architecture gets random weights (fixed seed). The biases of its classes are shifted so far that some objects pass the threshold.
tools/export_models.py exports it, `spillgate serve` serves the YAML that it prints, and `spillgate stream` sends a picture. The
picture has the size at which the library does not resample it, so both sides see the same numbers.

An object agrees when its class is the same, its corners and key points are within BOX pixels, its score within SCORE, and its mask (of
MASK_PIXELS or more) covers what the library's covers, holes filled, with an IoU of MASK or more; a classifier by its best classes and their
scores; an embedding by the cosine. The exit code is 1 when any architecture disagrees. It needs the packages of tools/export_models.py
and pillow. Nothing is downloaded.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image

BOX, SCORE, COSINE = 1.0, 1e-3, 0.9999
MASK, MASK_PIXELS = 0.95, 50
# Least score of an object, and how many are to reach it at least.
CONFIDENCE, OBJECTS = 0.3, 8
SEED = 0
# Greatest shift of a bias.
SHIFT = 500.0
# Score that a classifier's best class gets, and the greatest gain for it.
BEST, GAIN = 0.5, 1e5
# Part of the mean variance of a layer's channels.
LEAST_VARIANCE = 0.2
# Seconds until a server is ready, and until it has answered.
READY, ANSWERED = 300, 120
CLASSES = ["background", "cat", "dog", "bird", "fish", "bee"]
# What objects have beside their boxes, by the task.
FURTHER = {"segment": "masks", "pose": "keypoints"}
EXPORTER = Path(__file__).with_name("export_models.py")


def picture(width, height):
    """Patches of colour and some noise, the same each time."""
    rng = np.random.default_rng(SEED)
    pixels = np.full((height, width, 3), 90.0)
    for _ in range(40):
        x, y = rng.integers(0, width), rng.integers(0, height)
        w, h = rng.integers(8, width // 2), rng.integers(8, height // 2)
        pixels[y:y + h, x:x + w] = rng.integers(0, 256, 3)
    return Image.fromarray((pixels + rng.normal(0, 8, pixels.shape)).clip(0, 255).astype(np.uint8))


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


class Case:
    """One architecture: its files, the picture, the arguments of the exporter, the options of the module, the library's answer."""

    def __init__(self, image, exporter, answer, options=None, further=None):
        """`further` is an output of the module whose items belong to its boxes."""
        self.image, self.exporter, self.answer, self.options, self.further = image, exporter, answer, options or {}, further


def settle(network, run, tensor):
    """Let the normalisations of random weights fit pictures like [1, 3, h, w] `tensor`, so that what comes out depends on them."""
    norms = [part for part in network.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
        norm.train()
    with torch.no_grad():
        run(torch.cat([tensor, tensor.flip(-1), tensor.flip(-2), 1 - tensor]))
    for norm in norms:
        # Channels that hardly vary would blow up the last bits.
        norm.running_var.clamp_(min=norm.running_var.mean().item() * LEAST_VARIANCE)
    network.eval()


def smooth(prototypes):
    """Let random prototypes vary slowly, as trained ones do: the outline of noise says nothing."""
    with torch.no_grad():
        for layer in (prototypes.cv1.conv, prototypes.upsample, prototypes.cv2.conv):
            layer.weight.copy_(layer.weight.mean((2, 3), keepdim=True).expand_as(layer.weight))


def wake(layers, count, gain):
    """Scale the last layers of the classes by `gain` and shift `layers`' biases (views of them) until OBJECTS objects pass."""
    with torch.no_grad():
        for layer, _ in layers:
            layer.weight.mul_(gain)
        before = [bias.clone() for _, bias in layers]

        def shifted(by):
            for (_, bias), old in zip(layers, before):
                bias.copy_(old + by)
            return count()

        low, high = -SHIFT, SHIFT
        for _ in range(22):
            middle = (low + high) / 2
            passed = shifted(middle)
            low, high = (low, middle) if passed >= OBJECTS else (middle, high)
            if OBJECTS <= passed <= 2 * OBJECTS:
                break
        if shifted(high) < 1:
            raise RuntimeError("no bias lets an object pass")


def without_holes(mask):
    """A mask as its outer outlines bound it: outlines tell of no holes, the library's own (`Results.masks.xy`) neither."""
    import cv2
    outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.zeros(mask.shape, np.uint8), outlines, -1, 1, cv2.FILLED) > 0


def sharpen(linear, logits):
    """Scale the last layer of a classifier until its best class stands out: of a thousand equal scores, none would be SCORE off."""
    gain = 1.0
    while gain < GAIN and (logits * gain).softmax(-1).max() < BEST:
        gain *= 1.1
    with torch.no_grad():
        linear.weight.mul_(gain)
        linear.bias.mul_(gain)


def objects(boxes, labels, scores, size, masks=None, points=None):
    """Objects that pass, cut at the picture's edges, with their masks [n, height, width] or key points [n, k, 3] if there are any."""
    width, height = size
    found = []
    for i, ((x0, y0, x1, y1), label, score) in enumerate(zip(boxes.tolist(), labels, scores.tolist())):
        box = [min(max(x0, 0), width), min(max(y0, 0), height), min(max(x1, 0), width), min(max(y1, 0), height)]
        if score >= CONFIDENCE:
            one = {"box": box, "label": label, "score": score}
            if masks is not None:
                one["mask"] = without_holes(masks[i].numpy() > 0.5)
            if points is not None:
                one["points"], one["scores"] = points[i][:, :2].tolist(), points[i][:, 2].tolist()
            found.append(one)
    return found


def ultralytics_case(config, side, task="detect"):
    def make(folder):
        import ultralytics
        kind = ultralytics.RTDETR if config.startswith("rtdetr") else ultralytics.YOLO
        stretched = config.startswith("rtdetr")
        image = picture(side, side if stretched or task == "classify" else side * 3 // 4)
        bgr = np.ascontiguousarray(np.asarray(image)[..., ::-1])
        # Ultralytics takes yolov5n.pt for a file of another package, and would download yolov5nu.pt.
        path = folder / f"{Path(config).stem}.pt".replace("yolov5n", "yolov5nu")
        with quiet():
            model = kind(config)
            network = model.model.float().eval()
            tensor = torch.tensor(np.asarray(image)).permute(2, 0, 1)[None] / 255
            square = torch.full((1, 3, side, side), 114 / 255)
            square[:, :, (side - image.height) // 2:(side + image.height) // 2] = tensor
            head = network.model[-1]
            if task == "segment":
                smooth(head.proto)
            settle(network, network, square)

        def predict(of):
            with quiet():
                return of.predict(bgr, imgsz=side, conf=CONFIDENCE, iou=0.7, rect=False, verbose=False, device="cpu")[0]

        if task == "classify":
            with torch.no_grad():
                out = network(square)
                sharpen(head.linear, (out[0] if isinstance(out, tuple) else out)[0].log())
        else:
            convs = [c[-1] for name in ("cv3", "one2one_cv3") for c in getattr(head, name, None) or []]
            last = convs or [head.dec_score_head[-1]]

            def count():
                out = network(square)
                out = out[0] if isinstance(out, tuple) else out
                out = out[0] if isinstance(out, tuple) else out
                # The end-to-end heads and RT-DETR give scores in column 4; the others a row a class.
                return int((out[..., 4] if out.shape[-1] < 80 else out[:, 4:4 + head.nc].amax(1)).gt(CONFIDENCE).sum())
            wake([(layer, layer.bias) for layer in last], count, 3.0 if convs else 1.0)
        with quiet():
            model.save(str(path))
            saved = kind(str(path))

        def answer():
            result = predict(saved)
            if task == "classify":
                best = result.probs.data.topk(3)
                return [{"label": saved.names[int(i)], "score": float(s)} for i, s in zip(best.indices, best.values)]
            found = result.boxes
            masks, points = result.masks, result.keypoints
            if task == "segment":
                # They are of the input, with its bars.
                top = (side - image.height) // 2
                masks = masks.data[:, top:top + image.height] if masks is not None else torch.zeros(len(found), image.height, image.width)
            points = points.data if task == "pose" else None
            return objects(found.xyxy, [saved.names[int(c)] for c in found.cls], found.conf, image.size, masks, points)

        options = {"top": 3} if task == "classify" else {"confidence": CONFIDENCE, "iou": 0.7, "max_objects": 300}
        return Case(image, ["ultralytics", str(path), "--input", str(side)], answer, options, FURTHER.get(task))
    return make


def torchvision_detector(name, side, iou):
    def make(folder):
        from torchvision.models import detection
        from torchvision.transforms.functional import pil_to_tensor
        image = picture(side, side)
        tensor = pil_to_tensor(image) / 255
        sizes = {} if name.startswith("ssd") else {"min_size": side, "max_size": side}
        torch.manual_seed(SEED)
        network = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=len(CLASSES), **sizes).eval()
        settle(network, lambda batch: network(list(batch)), tensor[None])
        k = len(CLASSES)
        if name.startswith("ssd"):
            convs = [[m for m in part.modules() if isinstance(m, torch.nn.Conv2d)][-1]
                     for part in network.head.classification_head.module_list]
            layers, gain = [(conv, conv.bias.view(-1, k)[:, 1:]) for conv in convs], 8.0
        elif name.startswith("retina"):
            conv = network.head.classification_head.cls_logits
            layers, gain = [(conv, conv.bias)], 40.0
        else:
            linear = network.roi_heads.box_predictor.cls_score
            layers, gain = [(linear, linear.bias[1:])], 8.0

        def found():
            with torch.no_grad():
                return network([tensor])[0]

        wake(layers, lambda: int((found()["scores"] > CONFIDENCE).sum()), gain)
        torch.save(network.state_dict(), folder / f"{name}.pth")
        (folder / "labels.txt").write_text("\n".join(CLASSES), encoding="utf-8")

        def answer():
            out = found()
            return objects(out["boxes"], [CLASSES[i] for i in out["labels"]], out["scores"], image.size)

        exporter = ["torchvision", name, "--weights", str(folder / f"{name}.pth"), "--classes", str(k), "--labels",
                    str(folder / "labels.txt")]
        exporter += [] if name.startswith("ssd") else ["--input", str(side)]
        return Case(image, exporter, answer, {"confidence": CONFIDENCE, "iou": iou, "max_objects": 300})
    return make


def best(logits, names):
    top = logits.softmax(-1).topk(3)
    return [{"label": names[int(i)], "score": float(s)} for i, s in zip(top.indices, top.values)]


def torchvision_classifier(name, size):
    def make(folder):
        from torchvision import models
        known = models.get_model_weights(name).DEFAULT
        image = picture(size, size)
        tensor = known.transforms()(image)[None]
        torch.manual_seed(SEED)
        network = models.get_model(name, weights=None).eval()
        settle(network, network, tensor)
        with torch.no_grad():
            sharpen([part for part in network.modules() if isinstance(part, torch.nn.Linear)][-1], network(tensor)[0])
        torch.save(network.state_dict(), folder / f"{name}.pth")
        with torch.no_grad():
            answer = best(network(tensor)[0], known.meta["categories"])
        return Case(image, ["torchvision", name, "--weights", str(folder / f"{name}.pth")], lambda: answer, {"top": 3})
    return make


def timm_case(name, size, embed=False):
    def make(folder):
        import timm
        torch.manual_seed(SEED)
        network = timm.create_model(name, pretrained=False).eval()
        config = timm.data.resolve_model_data_config(network)
        image = picture(size, size)
        tensor = timm.data.create_transform(**config)(image)[None]
        settle(network, network, tensor)
        with torch.no_grad():
            sharpen(network.get_classifier(), network(tensor)[0])
        torch.save(network.state_dict(), folder / f"{name}.pth")
        exporter = ["timm", name, "--weights", str(folder / f"{name}.pth")]
        with torch.no_grad():
            if embed:
                network.reset_classifier(0)
                vector = network(tensor)[0]
                return Case(image, [*exporter, "--embed"], lambda: vector)
            names = timm.data.ImageNetInfo(timm.data.infer_imagenet_subset(network)).label_descriptions()
            answer = best(network(tensor)[0], names)
        return Case(image, exporter, lambda: answer, {"top": 3})
    return make


def huggingface_case(kind, side):
    def make(folder):
        import transformers as hf
        from transformers.models.detr.image_processing_detr import DetrImageProcessor
        from transformers.models.rt_detr.image_processing_rt_detr import RTDetrImageProcessor
        names = dict(enumerate(CLASSES[1:]))
        labels = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
        resnet = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 64, 128], "embedding_size": 16, "layer_type": "basic"}
        vit = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96, "image_size": side}
        square = {"height": side, "width": side}
        torch.manual_seed(SEED)
        if kind == "detr":
            config = hf.DetrConfig(
                use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=20, d_model=64, encoder_layers=1,
                backbone_config=hf.ResNetConfig(**resnet, out_features=["stage4"]), decoder_layers=1, encoder_ffn_dim=64,
                decoder_ffn_dim=64, **labels)
            network, processor = hf.DetrForObjectDetection(config), DetrImageProcessor(size=square)
            last = network.class_labels_classifier
            layers = [(last, last.bias[:-1])]
        elif kind == "rtdetr":
            config = hf.RTDetrConfig(
                num_queries=30, decoder_layers=2, d_model=64, encoder_hidden_dim=64, encoder_ffn_dim=64, decoder_ffn_dim=64,
                decoder_in_channels=[64, 64, 64], encoder_in_channels=[32, 64, 128], backbone_config=hf.RTDetrResNetConfig(
                    **resnet, out_features=["stage2", "stage3", "stage4"]), **labels)
            network, processor = hf.RTDetrForObjectDetection(config), RTDetrImageProcessor(size=square)
            last = network.model.decoder.class_embed[-1]
            layers = [(last, last.bias)]
        elif kind == "yolos":
            network = hf.YolosForObjectDetection(hf.YolosConfig(**{**vit, "image_size": [side, side]}, num_detection_tokens=20, **labels))
            processor = hf.YolosImageProcessor(size=square)
            last = network.class_labels_classifier.layers[-1]
            layers = [(last, last.bias[:-1])]
        elif kind == "vit":
            network, processor = hf.ViTForImageClassification(hf.ViTConfig(**vit, **labels)), hf.ViTImageProcessor(size=square)
        else:
            network = hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**vit, projection_dim=32))
            processor = hf.CLIPImageProcessor(size={"shortest_edge": side}, crop_size=square)
        image = picture(side, side)
        tensor = processor(images=image, return_tensors="pt")["pixel_values"]
        network.eval()
        settle(network, lambda batch: network(pixel_values=batch), tensor)

        def found():
            with torch.no_grad():
                return network(pixel_values=tensor)

        def detected():
            return processor.post_process_object_detection(found(), threshold=CONFIDENCE, target_sizes=[(side, side)])[0]

        if kind in ("detr", "rtdetr", "yolos"):
            for _, bias in layers:
                # New networks of this kind may give all classes one score.
                torch.nn.init.normal_(bias, std=2.0)
            wake(layers, lambda: len(detected()["scores"]), 8.0)
        if kind == "vit":
            sharpen(network.classifier, found().logits[0])
        path = folder / kind
        with quiet():
            network.save_pretrained(path)
            processor.save_pretrained(path)
        exporter = ["huggingface", str(path)]
        if kind == "vit":
            return Case(image, exporter, lambda: best(found().logits[0], names), {"top": 3})
        if kind == "clip":
            return Case(image, exporter, lambda: found().image_embeds[0])

        def answer():
            out = detected()
            return objects(out["boxes"], [names[int(i)] for i in out["labels"]], out["scores"], image.size)

        return Case(image, exporter, answer, {"confidence": CONFIDENCE, "max_objects": 300})
    return make


ARCHITECTURES = {
    "yolov5nu": ultralytics_case("yolov5n.yaml", 160),
    "yolov8n": ultralytics_case("yolov8n.yaml", 160),
    "yolov10n": ultralytics_case("yolov10n.yaml", 160),
    "yolo11n": ultralytics_case("yolo11n.yaml", 160),
    "yolo26n": ultralytics_case("yolo26n.yaml", 160),
    "yolo11n-seg": ultralytics_case("yolo11n-seg.yaml", 160, "segment"),
    "yolo11n-pose": ultralytics_case("yolo11n-pose.yaml", 160, "pose"),
    "yolo11n-cls": ultralytics_case("yolo11n-cls.yaml", 224, "classify"),
    "rtdetr-l": ultralytics_case("rtdetr-l.yaml", 320),
    "ssdlite320": torchvision_detector("ssdlite320_mobilenet_v3_large", 320, 0.55),
    "ssd300": torchvision_detector("ssd300_vgg16", 300, 0.45),
    "retinanet": torchvision_detector("retinanet_resnet50_fpn", 320, 0.5),
    "fasterrcnn": torchvision_detector("fasterrcnn_mobilenet_v3_large_320_fpn", 320, 0.5),
    "resnet18": torchvision_classifier("resnet18", 256),
    "mobilenetv3": timm_case("mobilenetv3_small_100", 256),
    "vit_tiny": timm_case("vit_tiny_patch16_224", 248),
    "vit_tiny-embed": timm_case("vit_tiny_patch16_224", 248, embed=True),
    "detr": huggingface_case("detr", 224),
    "rtdetr": huggingface_case("rtdetr", 320),
    "yolos": huggingface_case("yolos", 224),
    "vit": huggingface_case("vit", 224),
    "clip": huggingface_case("clip", 224),
}


def export(case, folder, program):
    """The line of YAML that the exporter prints, with the case's options. Larger batches would only be measured, which takes long."""
    made = subprocess.run([sys.executable, str(EXPORTER), *case.exporter, "--out", str(folder), "--spillgate", program],
                          capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(made.stderr.strip().splitlines()[-1])
    line = made.stdout.strip().splitlines()[-1]
    options = ", ".join(f"{key}: {value}" for key, value in case.options.items())
    return line[:line.rindex("}")].rstrip() + ", batch: { max: 1 }" + (f", options: {{ {options} }}" if options else "") + " }"


def serve(case, line, folder, program):
    """What a server answers for the picture."""
    name, op = line.split(":", 1)[0].strip(), line.split("op: ", 1)[1].split(",", 1)[0]
    output = {"detector": "boxes", "classifier": "labels"}.get(op, "embeddings")
    outputs = f"answer: ${name}.{output}" + (f", further: ${name}.{case.further}" if case.further else "")
    pipeline, port, results, image = (folder / n for n in ("pipeline.yaml", "port", "results.jsonl", "picture.png"))
    pipeline.write_text(f"name: compare\nslo: 60s\nmodules:\n{line}\noutputs: {{ {outputs} }}\n", encoding="utf-8")
    case.image.save(image)
    # ONNX Runtime is looked for in the packages of the python3 on the path.
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    with open(folder / "serve.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen([program, "serve", str(pipeline), "--listen", "127.0.0.1:0", "--no-admin", "--port-file", str(port)],
                                  stdout=log, stderr=subprocess.STDOUT, env=env)
    try:
        until = time.monotonic() + READY
        while not (port.exists() and port.read_text(encoding="utf-8").strip()):
            if server.poll() is not None or time.monotonic() > until:
                said = (folder / "serve.log").read_text(encoding="utf-8").strip().splitlines()
                raise RuntimeError(f"the server is not ready: {said[-1] if said else 'it says nothing'}")
            time.sleep(0.1)
        sent = subprocess.run([program, "stream", str(image), "--server", f"http://{port.read_text(encoding='utf-8').strip()}", "--raw",
                               "--no-adapt", "--frames", "1", "--quiet", "--results", str(results)],
                              capture_output=True, text=True, timeout=ANSWERED)
    finally:
        server.terminate()
        server.wait()
    if sent.returncode != 0:
        raise RuntimeError(sent.stderr.strip().splitlines()[-1])
    result = json.loads(results.read_text(encoding="utf-8").splitlines()[0])
    if result["outcome"] != "completed":
        raise RuntimeError(f"the frame is {result['outcome']}: {result.get('error', '')}")
    answer = result["outputs"]["answer"]
    for item in result["outputs"].get("further", []):
        answer[item["object"]].update({key: item[key] for key in ("polygons", "points", "scores") if key in item})
    return answer


def filled(polygons, height, width):
    """The pixels whose centres are in polygons."""
    inside = np.zeros((height, width), bool)
    xs, ys = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    for polygon in polygons:
        crossed = np.zeros_like(inside)
        for (ax, ay), (bx, by) in zip(polygon, polygon[1:] + polygon[:1]):
            if ay != by:
                crossed ^= ((ay > ys) != (by > ys)) & (xs < (bx - ax) * (ys - ay) / (by - ay) + ax)
        inside |= crossed
    return inside


def compare_further(pairs):
    """Whether the masks or key points of pairs of objects agree, and in what."""
    if any("mask" in b for _, b in pairs):
        masks = [(filled(a["polygons"], *b["mask"].shape), b["mask"]) for a, b in pairs if b["mask"].sum() >= MASK_PIXELS]
        least = min(((a & b).sum() / (a | b).sum() for a, b in masks), default=0.0)
        return bool(least >= MASK), f"; {len(masks)} masks, least IoU {least:.3f}"
    if any("points" in b for _, b in pairs):
        def apart(key):
            return max(np.abs(np.subtract(a[key], b[key])).max() for a, b in pairs)
        agrees = bool(apart("points") <= BOX and apart("scores") <= SCORE)
        return agrees, f"; points {apart('points'):.3f} px, their scores {apart('scores'):.5f} apart"
    return True, ""


def compare_objects(ours, theirs):
    """Pairs of objects that agree, the rest, and the greatest differences of those pairs."""
    left, box_off, score_off, alone, pairs = list(ours), 0.0, 0.0, [], []
    for one in theirs:
        def distance(other):
            return max(abs(a - b) for a, b in zip(one["box"], other["box"]))
        same = [o for o in left if o["label"] == one["label"] and abs(o["score"] - one["score"]) <= SCORE and distance(o) <= BOX]
        if not same:
            alone.append(one)
            continue
        nearest = min(same, key=distance)
        left.remove(nearest)
        pairs.append((nearest, one))
        box_off, score_off = max(box_off, distance(nearest)), max(score_off, abs(nearest["score"] - one["score"]))
    # At the threshold and without an area either side may have one more.
    counts = [o for o in alone + left if o["score"] > CONFIDENCE + SCORE
              and o["box"][2] - o["box"][0] > BOX and o["box"][3] - o["box"][1] > BOX]
    further, said = compare_further(pairs)
    agrees = bool(theirs) and not counts and further
    return agrees, f"{len(theirs)} and {len(ours)} objects, {len(counts)} alone; boxes {box_off:.3f} px, scores {score_off:.5f} apart{said}"


def compare(ours, theirs):
    """Whether both agree, and in what."""
    if isinstance(theirs, torch.Tensor):
        # One embedding of the picture, as a list or in a field of its own.
        first = ours[0] if isinstance(ours, list) else ours
        numbers = torch.tensor(first.get("embedding", first.get("data")) if isinstance(first, dict) else first, dtype=torch.float32)
        if numbers.shape != theirs.shape:
            return False, f"{len(theirs)} and {len(numbers)} numbers"
        cosine = torch.nn.functional.cosine_similarity(numbers, theirs, dim=0).item()
        return cosine > COSINE, f"{len(theirs)} numbers, cosine {cosine:.6f}"
    if theirs and "box" in theirs[0]:
        return compare_objects(ours, theirs)
    apart = max((abs(a["score"] - b["score"]) for a, b in zip(ours, theirs)), default=1.0)
    same = [a["label"] for a in ours] == [b["label"] for b in theirs]
    return same and apart <= SCORE, f"{'the same' if same else 'other'} best classes, scores {apart:.5f} apart"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*", metavar="ARCHITECTURE", help=f"of {', '.join(ARCHITECTURES)} (default: all)")
    parser.add_argument("--spillgate", metavar="PROGRAM", default="spillgate", help="(default: on the path)")
    args = parser.parse_args()
    unknown = [name for name in args.architectures if name not in ARCHITECTURES]
    if unknown:
        sys.exit(f"compare_models: no architecture {', '.join(unknown)}; there are {', '.join(ARCHITECTURES)}")
    os.environ.update(YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true", HF_HUB_OFFLINE="1")
    agreed = 0
    names = args.architectures or list(ARCHITECTURES)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            torch.manual_seed(SEED)
            try:
                case = ARCHITECTURES[name](folder)
                ours = serve(case, export(case, folder, args.spillgate), folder, args.spillgate)
                agrees, said = compare(ours, case.answer())
            except Exception as error:  # noqa: BLE001: the others are compared all the same
                agrees, said = False, f"{error}".strip() or type(error).__name__
        agreed += agrees
        print(f"{name:<16} {'agrees' if agrees else 'DISAGREES':<10} {said}", flush=True)
    print(f"{agreed} of {len(names)} architectures agree")
    sys.exit(int(agreed < len(names)))


if __name__ == "__main__":
    main()
