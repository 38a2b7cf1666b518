#!/usr/bin/env python3
"""Record what the libraries' own functions make of small tensors, for the tests of Spillgate's decoders.

    tools/head_vectors.py            # rewrites apps/modules/library/src/heads/vectors/*.json

Each file is of one head: {"head", "made_by": {package: version}, "cases": [case]}. A case has "name", "inputs" (a list of {"name",
"shape", "data"}, row by row), "params" and "expected". Values are drawn from a fixed seed and written with few digits, so that a
32-bit float reads the same number; the library is given what was written. Every score stays MARGIN away from the threshold, every
two overlapping boxes MARGIN away from the greatest overlap, and every two scores SCORE_STEP apart, so the answer
does not hang on the last bits.

It needs Python with torch, torchvision, ultralytics, transformers and yolov5 (with --no-deps; and pandas, seaborn and setuptools<81).
The same versions write the same bytes. Nothing of these libraries is in the files, only numbers that they computed.
"""

import importlib.metadata
import json
import sys
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torchvision

FOLDER = Path(__file__).resolve().parent.parent / "apps/modules/library/src/heads/vectors"
MARGIN = 0.004
SCORE_STEP = 0.0005
# Most bytes of a file.
LARGEST = 60_000
MOST_DRAWS = 10_000


def versions(*packages):
    return {name: importlib.metadata.version(name) for name in ("torch", *packages)}


def numbers(values, digits):
    """Nested lists of a tensor or array, rounded; whole numbers without a point."""
    if isinstance(values, torch.Tensor):
        values = values.detach().numpy()
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        return values.tolist()
    return json.loads(json.dumps(np.round(values.astype(np.float64), digits).tolist()))


def tensor(name, values, digits=4):
    """One tensor as written, and the torch tensor that reads the same."""
    values = np.round(np.asarray(values, dtype=np.float64), digits)
    data = [int(v) if v == int(v) else v for v in values.reshape(-1).tolist()]
    return {"name": name, "shape": list(values.shape), "data": data}, torch.tensor(values, dtype=torch.float32)


def write(head, made_by, cases):
    def lines(case):
        parts = [f'    "name": {json.dumps(case["name"])}']
        tensors = ",\n".join("      " + json.dumps(t) for t in case["inputs"])
        parts.append(f'    "inputs": [\n{tensors}\n    ]')
        parts.append(f'    "params": {json.dumps(case["params"])}')
        expected = ",\n".join(f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in case["expected"].items())
        parts.append(f'    "expected": {{\n{expected}\n    }}')
        return "  {\n" + ",\n".join(parts) + "\n  }"

    text = (f'{{\n"head": {json.dumps(head)},\n"made_by": {json.dumps(made_by)},\n"cases": [\n'
            + ",\n".join(lines(case) for case in cases) + "\n]\n}\n")
    json.loads(text)
    path = FOLDER / f"{head}.json"
    if len(text) > LARGEST:
        sys.exit(f"head_vectors: {path} would have {len(text)} bytes; {LARGEST} is the most")
    path.write_text(text, encoding="utf-8")
    print(f"{path.name}: {len(cases)} cases, {len(text)} bytes")


def draws(seed, what):
    """Generators of random numbers until one is good enough for the caller, who then leaves the loop."""
    for attempt in range(MOST_DRAWS):
        yield np.random.default_rng([seed, attempt])
    sys.exit(f"head_vectors: no draw for {what} keeps its margins; draw less")


def iou(boxes):
    return torchvision.ops.box_iou(boxes, boxes)


class Clusters:
    """Boxes in clusters around few places, as a detector gives them, with one score a class."""

    def __init__(self, seed, n, classes, side, confidence, overlaps, groups=8):
        for rng in draws(seed, "boxes in clusters"):
            centre = rng.uniform(0.15, 0.85, (groups, 2)) * side
            size = rng.uniform(0.12, 0.45, (groups, 2)) * side
            of = rng.integers(0, groups, n)
            spread = 0.14 * size[of]
            xy = np.round(centre[of] + rng.normal(0, 1, (n, 2)) * spread, 2)
            wh = np.round(size[of] * rng.uniform(0.75, 1.3, (n, 2)), 2)
            likely = rng.integers(0, classes, groups)
            scores = rng.uniform(0.001, 0.22, (n, classes))
            high = rng.random(n) < 0.6
            scores[np.arange(n)[high], likely[of[high]]] = rng.uniform(0.28, 0.98, high.sum())
            second = rng.random(n) < 0.15
            scores[np.arange(n)[second], rng.integers(0, classes, second.sum())] = rng.uniform(0.26, 0.9, second.sum())
            scores = np.round(scores, 4)
            boxes = torch.tensor(np.concatenate([xy - wh / 2, xy + wh / 2], 1))
            over = iou(boxes)
            flat = np.sort(scores.reshape(-1)[scores.reshape(-1) > confidence])
            if (np.abs(scores - confidence).min() > MARGIN and np.diff(flat).min() > SCORE_STEP
                    and all((over - limit).abs().min() > MARGIN / 4 for limit in overlaps)):
                self.xywh, self.scores, self.rng = np.concatenate([xy, wh], 1), scores, rng
                return


def detections(rows):
    """Rows of left, top, right, bottom, score, class."""
    return [[*numbers(row[:5], 4), int(row[5])] for row in rows]


def back(ops, rows, params):
    """The rows with boxes in pixels of the picture, letterboxed into the input."""
    rows = rows.clone()
    rows[:, :4] = ops.scale_boxes(params["input"], rows[:, :4], params["source"])
    return rows


def runs(mask):
    """Lengths of runs of 0 and 1 in turns, row by row, beginning with 0 (the first may be of length 0)."""
    flat = np.asarray(mask, dtype=np.uint8).reshape(-1)
    lengths = [(value, len(list(group))) for value, group in groupby(flat.tolist())]
    return ([0] if lengths and lengths[0][0] == 1 else []) + [length for _, length in lengths]


def yolo():
    from ultralytics.utils import nms, ops
    cases = []
    for name, seed, params in (
        ("one class each, letterboxed from a wide picture", 1, {"source": [217, 333], "iou": 0.7, "max": 300}),
        ("less overlap, a tall picture", 2, {"source": [480, 301], "iou": 0.45, "max": 300}),
        ("the best five of all", 3, {"source": [160, 160], "iou": 0.7, "max": 5}),
        ("overlaps of any class", 4, {"source": [90, 160], "iou": 0.5, "max": 300, "agnostic": True}),
    ):
        params = {"input": [160, 160], "fit": "letterbox", "confidence": 0.25, "agnostic": False, **params}
        draw = Clusters(seed, 40, 4, 160, params["confidence"], [params["iou"]])
        written, preds = tensor("output0", np.concatenate([draw.xywh, draw.scores], 1).T[None])
        rows = nms.non_max_suppression(preds.clone(), params["confidence"], params["iou"], agnostic=params["agnostic"],
                                       max_det=params["max"], nc=4)[0]
        cases.append({"name": name, "inputs": [written], "params": params, "expected": {
            "in_input": detections(rows), "in_source": detections(back(ops, rows, params))}})
    write("yolo", versions("ultralytics", "torchvision"), cases)


def yolov5():
    from ultralytics.utils import ops
    from yolov5.utils.general import non_max_suppression
    params = {"input": [160, 160], "source": [217, 333], "fit": "letterbox", "confidence": 0.25, "iou": 0.45, "max": 300}
    draw = Clusters(100, 45, 4, 160, params["confidence"], [params["iou"]])
    for rng in draws(101, "yolov5"):
        objectness = np.round(rng.uniform(0.1, 1.0, (45, 1)), 3)
        products = (draw.scores * objectness).max(1)
        apart = np.diff(np.sort(products[products > 0.1])).min()
        if apart > SCORE_STEP / 2 and np.abs(np.concatenate([products, objectness[:, 0]]) - 0.25).min() > MARGIN / 2:
            break
    written, preds = tensor("output0", np.concatenate([draw.xywh, objectness, draw.scores], 1)[None])
    rows = non_max_suppression(preds.clone(), params["confidence"], params["iou"], max_det=params["max"])[0]
    write("yolov5", versions("yolov5", "ultralytics", "torchvision"), [{
        "name": "objectness times class", "inputs": [written], "params": params,
        "expected": {"in_input": detections(rows), "in_source": detections(back(ops, rows, params))}}])


def nms_inside():
    """[batch, n, 6]: overlaps are suppressed already, and rows of zeros may fill up."""
    from ultralytics.models.rtdetr.predict import RTDETRPredictor
    from ultralytics.utils import nms, ops
    params = {"input": [160, 160], "source": [217, 333], "fit": "letterbox", "confidence": 0.25, "max": 300}
    draw = Clusters(200, 14, 4, 160, 0.25, [])
    corners = np.concatenate([draw.xywh[:, :2] - draw.xywh[:, 2:] / 2, draw.xywh[:, :2] + draw.xywh[:, 2:] / 2], 1)
    best = np.concatenate([draw.scores.max(1)[:, None], draw.scores.argmax(1)[:, None]], 1)
    rows = np.concatenate([corners, best], 1)[np.argsort(-best[:, 0])]
    cases = []
    for name, values in (("every row real", rows), ("rows of zeros at the end", np.concatenate([rows[:6], np.zeros((6, 6))]))):
        written, preds = tensor("output0", values[None])
        got = nms.non_max_suppression(preds.clone(), params["confidence"], max_det=params["max"], nc=4)[0]
        cases.append({"name": name, "inputs": [written], "params": {**params, "box": "corners in pixels"}, "expected": {
            "in_input": detections(got), "in_source": detections(back(ops, got, params))}})
    # RT-DETR's: centre and size from 0 to 1, of a picture that was stretched.
    stretched = {**params, "fit": "stretch", "box": "centre and size, 0 to 1"}
    written, preds = tensor("output0", np.concatenate([draw.xywh / 160, best], 1)[np.argsort(-best[:, 0])][None], 5)
    owner = SimpleNamespace(args=SimpleNamespace(conf=0.25, classes=None, max_det=300), batch=["p"],
                            model=SimpleNamespace(names={i: str(i) for i in range(4)}))
    picture = np.zeros((*params["source"], 3), np.uint8)
    result = RTDETRPredictor.postprocess(owner, preds.clone(), None, [picture])[0]
    cases.append({"name": "centre and size of a stretched picture", "inputs": [written], "params": stretched,
                  "expected": {"in_source": detections(result.boxes.data)}})
    write("nms", versions("ultralytics", "torchvision"), cases)


def yolo_seg():
    from ultralytics.utils import nms, ops
    params = {"input": [80, 80], "source": [60, 100], "fit": "letterbox", "confidence": 0.25, "iou": 0.5, "max": 300,
              "classes": 4}
    for rng in draws(300, "boxes that end at no pixel"):
        draw = Clusters(int(rng.integers(1_000_000)), 26, 4, 80, 0.25, [0.5], groups=5)
        corners = np.concatenate([draw.xywh[:, :2] - draw.xywh[:, 2:] / 2, draw.xywh[:, :2] + draw.xywh[:, 2:] / 2])
        to_pixel = np.abs(corners / 4 - np.round(corners / 4)).min(), np.abs(corners - np.round(corners)).min()
        if min(to_pixel) > 1e-4:
            break
    for rng in draws(301, "yolo-seg"):
        y, x = np.mgrid[0:20, 0:20] / 20
        wave = rng.uniform(0.5, 2.5, (8, 3, 1, 1))
        protos = np.sin(wave[:, 0] * 3 * x + wave[:, 1] * 3 * y + wave[:, 2] * 3)
        coefficients = rng.normal(0, 1, (26, 8))
        written, preds = tensor("output0", np.concatenate([draw.xywh, draw.scores, coefficients], 1).T[None], 3)
        written_protos, protos = tensor("output1", protos[None], 3)
        rows = nms.non_max_suppression(preds.clone(), 0.25, params["iou"], max_det=300, nc=4)[0]
        at_input = torch.nn.functional.interpolate((rows[:, 6:] @ protos[0].reshape(8, -1)).reshape(1, -1, 20, 20),
                                                   (80, 80), mode="bilinear")
        # No pixel hangs on the last bits.
        if at_input.abs().min() > 1e-5:
            break
    upsampled = ops.process_mask(protos[0], rows[:, 6:], rows[:, :4].clone(), (80, 80), upsample=True)
    small = ops.process_mask(protos[0], rows[:, 6:], rows[:, :4].clone(), (80, 80), upsample=False)
    native = ops.process_mask_native(protos[0], rows[:, 6:], back(ops, rows, params)[:, :4], params["source"])
    write("yolo-seg", versions("ultralytics", "torchvision"), [{
        "name": "masks at three sizes", "inputs": [written, written_protos], "params": params, "expected": {
            "in_input": detections(rows), "in_source": detections(back(ops, rows, params)),
            "masks_in_input": [runs(mask) for mask in upsampled],
            "masks_of_prototypes": [runs(mask) for mask in small],
            "masks_in_source": [runs(mask) for mask in native]}}])


def yolo_pose():
    from ultralytics.utils import nms, ops
    cases = []
    for points, values, seed in ((5, 3, 400), (4, 2, 401)):
        params = {"input": [160, 160], "source": [217, 333], "fit": "letterbox", "confidence": 0.25, "iou": 0.7, "max": 300,
                  "classes": 1, "points": points, "values": values}
        draw = Clusters(seed, 40, 1, 160, 0.25, [0.7])
        xy = draw.xywh[:, None, :2] + draw.rng.uniform(-0.7, 0.7, (40, points, 2)) * draw.xywh[:, None, 2:]
        seen = draw.rng.uniform(0, 1, (40, points, 1))
        parts = np.round(np.concatenate([xy, seen], 2)[..., :values], 3).reshape(40, -1)
        written, preds = tensor("output0", np.concatenate([draw.xywh, draw.scores, parts], 1).T[None])
        rows = nms.non_max_suppression(preds.clone(), 0.25, 0.7, max_det=300, nc=1)[0]
        found = rows[:, 6:].clone().view(len(rows), points, values)
        in_source = ops.scale_coords(params["input"], found.clone(), params["source"])
        cases.append({"name": f"{points} points of {values} values", "inputs": [written], "params": params, "expected": {
            "in_input": detections(rows), "in_source": detections(back(ops, rows, params)),
            "points_in_input": numbers(found, 4), "points_in_source": numbers(in_source, 4)}})
    write("yolo-pose", versions("ultralytics", "torchvision"), cases)


def ssd():
    """Boxes of 0 to 1 and probabilities with the background first; a picture stretched to the input."""
    from torchvision.models.detection.ssd import SSD
    from torchvision.models.detection.transform import resize_boxes
    cases = []
    for name, seed, keep, top in (("all that stay", 500, 200, 400), ("few", 501, 4, 6)):
        params = {"input": [300, 300], "source": [217, 333], "fit": "stretch", "confidence": 0.25, "iou": 0.45, "max": keep,
                  "top": top, "background": 0}
        draw = Clusters(seed, 40, 4, 1.0, 0.25, [])
        centre, size = draw.xywh[:, :2], draw.xywh[:, 2:]
        shares = draw.scores / np.maximum(draw.scores.sum(1, keepdims=True), 1.0) * 0.98
        for rng in draws(seed, "ssd"):
            middle = centre + rng.normal(0, 0.02, centre.shape)
            corners = np.round(np.concatenate([middle - size / 2, middle + size / 2], 1), 4)
            scores = np.round(shares * rng.uniform(0.9, 1.0, shares.shape), 4)
            high = np.sort(scores[scores > 0.2])
            over = iou(torch.tensor(corners).clamp(0, 1))
            if (np.abs(scores - 0.25).min() > MARGIN / 4 and np.diff(high).min() > SCORE_STEP / 5
                    and (over - 0.45).abs().min() > MARGIN / 8):
                break
        scores = np.concatenate([1 - scores.sum(1, keepdims=True), scores], 1)
        written_boxes, boxes = tensor("boxes", corners[None])
        written_scores, probabilities = tensor("scores", scores[None])
        owner = SimpleNamespace(box_coder=SimpleNamespace(decode_single=lambda boxes, anchors: boxes), score_thresh=0.25,
                                topk_candidates=top, nms_thresh=0.45, detections_per_img=keep)
        size_of = tuple(params["input"])
        found = SSD.postprocess_detections(
            owner, {"bbox_regression": boxes * 300, "cls_logits": probabilities.log()}, [None], [size_of])[0]
        rows = torch.cat([found["boxes"], found["scores"][:, None], found["labels"][:, None]], 1)
        in_source = rows.clone()
        in_source[:, :4] = resize_boxes(rows[:, :4], size_of, params["source"])
        cases.append({"name": name, "inputs": [written_boxes, written_scores], "params": params,
                      "expected": {"in_input": detections(rows), "in_source": detections(in_source)}})
    write("ssd", versions("torchvision"), cases)


def lists():
    """A list of boxes, of labels and of scores for one picture, as torchvision's detectors end; some with points."""
    from torchvision.models.detection.transform import GeneralizedRCNNTransform
    cases = []
    for name, order in (("boxes, labels, scores", 1), ("boxes, scores, labels", -1), ("with points", 1), ("none", 1)):
        params = {"input": [160, 160], "source": [217, 333], "fit": "stretch", "confidence": 0.25}
        rng = np.random.default_rng(600)
        n = 0 if name == "none" else 9
        corner = rng.uniform(0, 110, (n, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(5, 50, (n, 2))], 1).clip(0, 160)
        scores = np.sort(rng.uniform(0.05, 0.99, n))[::-1]
        written, boxes = tensor("boxes", boxes, 2)
        written_scores, scores = tensor("scores", scores)
        labels = rng.integers(1, 5, n)
        written_labels = {"name": "labels", "shape": [n], "type": "int64", "data": labels.tolist()}
        inputs = [written, *[written_labels, written_scores][::order]]
        found = {"boxes": boxes, "scores": scores, "labels": torch.tensor(labels)}
        if name == "with points":
            points = np.concatenate([rng.uniform(0, 160, (n, 3, 2)), np.ones((n, 3, 1))], 2)
            written_points, found["keypoints"] = tensor("keypoints", points, 2)
            written_values, _ = tensor("keypoints_scores", rng.normal(0, 3, (n, 3)), 3)
            inputs += [written_points, written_values]
        keep = found["scores"] > 0.25
        found = {key: value[keep] for key, value in found.items()}
        after = GeneralizedRCNNTransform(160, 160, [0.0] * 3, [1.0] * 3).eval().postprocess(
            [dict(found)], [tuple(params["input"])], [tuple(params["source"])])[0]
        rows = torch.cat([after["boxes"], after["scores"][:, None], after["labels"][:, None]], 1)
        expected = {"in_source": detections(rows)}
        if "keypoints" in after:
            expected["points_in_source"] = numbers(after["keypoints"], 4)
        cases.append({"name": name, "inputs": inputs, "params": params, "expected": expected})
    write("lists", versions("torchvision"), cases)


def detr():
    """Logits and boxes (centre and size, 0 to 1) of a picture that was stretched."""
    from transformers.models.detr.image_processing_detr import DetrImageProcessor
    from transformers.models.rt_detr.image_processing_rt_detr import RTDetrImageProcessor
    cases = []
    for name, columns, processor in (("softmax, the last column is no object", 5, DetrImageProcessor),
                                     ("sigmoid", 4, RTDetrImageProcessor)):
        params = {"source": [217, 333], "fit": "stretch", "confidence": 0.5, "max": 24, "classes": 4,
                  "activation": name.split(",")[0]}
        for rng in draws(700 + columns, "detr"):
            boxes = np.concatenate([rng.uniform(0.1, 0.9, (24, 2)), rng.uniform(0.05, 0.4, (24, 2))], 1)
            logits = rng.normal(-1.5, 2.0, (24, columns))
            written_logits, logits = tensor("logits", logits[None], 3)
            written_boxes, boxes = tensor("pred_boxes", boxes[None])
            scores = logits.softmax(-1)[..., :-1] if columns == 5 else logits.sigmoid()
            flat = scores.reshape(-1).sort().values
            if (scores - 0.5).abs().min() > MARGIN and flat[flat > 0.4].diff().min() > SCORE_STEP:
                break
        found = processor().post_process_object_detection(SimpleNamespace(logits=logits, pred_boxes=boxes), threshold=0.5,
                                                          target_sizes=[tuple(params["source"])])[0]
        rows = torch.cat([found["boxes"], found["scores"][:, None], found["labels"][:, None]], 1)
        rows = rows[rows[:, 4].argsort(descending=True)]
        cases.append({"name": name, "inputs": [written_logits, written_boxes], "params": params,
                      "expected": {"in_source": detections(rows)}})
    write("detr", versions("transformers"), cases)


def classes():
    cases = []
    for name, function in (("softmax", lambda x: x.softmax(-1)), ("sigmoid", torch.sigmoid)):
        rng = np.random.default_rng(800)
        written, logits = tensor("logits", rng.normal(0, 3, (2, 10)), 3)
        scores = function(logits)
        top = scores.topk(3, dim=1)
        cases.append({"name": name, "inputs": [written], "params": {"activation": name, "top": 3}, "expected": {
            "scores": numbers(scores, 6), "top": [[[int(i), round(float(s), 6)] for i, s in zip(*pair)]
                                                  for pair in zip(top.indices, top.values)]}})
    write("classes", versions(), cases)


def embedding():
    rng = np.random.default_rng(900)
    written, values = tensor("embedding", rng.normal(0, 2, (3, 12)), 3)
    unit = torch.nn.functional.normalize(values, dim=1)
    write("embedding", versions(), [{"name": "of length 1", "inputs": [written], "params": {}, "expected": {
        "unit": numbers(unit, 6), "cosines": numbers(unit @ unit.T, 6)}}])


def letterbox():
    """Where a picture lies in the input: [input h, w, source h, w, scaled h, w, top, left]."""
    from ultralytics.data.augment import LetterBox
    rng = np.random.default_rng(1000)
    rows = []
    sizes = [(640, 640), (160, 160), (320, 640), (384, 224)]
    sources = [(480, 640), (1080, 1920), (1, 3000), (217, 333), (333, 217), (640, 640), (427, 640), (100, 100)]
    sources += [tuple(int(v) for v in rng.integers(20, 2500, 2)) for _ in range(60)]
    for size in sizes:
        for source in sources:
            # Only where a 32-bit float rounds the same.
            scale = min(size[0] / source[0], size[1] / source[1])
            if any(abs(v * scale % 1 - 0.5) < 1e-3 for v in source):
                continue
            got = LetterBox(size).get_params({"img": np.broadcast_to(np.uint8(0), (*source, 3))})
            w, h = got["new_unpad"]
            rows.append([*size, *source, h, w, got["top"], got["left"]])
    write("letterbox", versions("ultralytics"), [
        {"name": "places", "inputs": [], "params": {}, "expected": {"places": rows}}])


def main():
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for part in (yolo, yolov5, nms_inside, yolo_seg, yolo_pose, ssd, lists, detr, classes, embedding, letterbox):
        part()
    packages = versions("torchvision", "ultralytics", "transformers", "yolov5")
    print("with " + ", ".join(f"{name} {version}" for name, version in packages.items()))


if __name__ == "__main__":
    main()
