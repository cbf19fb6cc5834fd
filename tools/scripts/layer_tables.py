#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tables of layers of well-known networks, for `weft merge`, counted from their architectures.

    tools/scripts/layer_tables.py tools/data/layers      writes all of them
    tools/scripts/layer_tables.py --check FOLDER         exit 1 if what is there is anything else

A layer is what has parameters: a convolution or a fully connected layer with its weights and biases,
the scale and shift of a normalisation, an embedding. `tensors` says how many elements each of its
parameters has. Layers stand in the order of the backward pass, which is that of the forward pass
reversed; auxiliary classifiers stand where they branch off.

When a gradient is ready is an estimate: the backward pass takes two thirds of an iteration, whose
length is the batch by a published throughput of the network on one GPU of a Tesla K80, and each layer
of it takes its share by operations: of a convolution or fully connected layer twice those of its forward
pass (for its inputs and for its weights; of the first layer once), of a normalisation 8 an element.
What has no parameters (activations, pooling) is not counted. Standard library alone.
"""
import json
import os
import sys

PARTS_BACKWARD = 2 / 3  # so do the authors of MG-WFBP: the forward pass takes half of the backward one

# Where throughputs come from, in samples a second on one GPU of a K80.
B_CAFFE = ("B-Caffe, 2 GPUs on one machine (github.com/shyhuai/B-Caffe, scripts/gmwfbp.py, the authors of "
           "MG-WFBP)")
TENSORFLOW = "TensorFlow benchmarks, one GPU of a K80 on Google Compute Engine, synthetic data (May 2017)"
RATE = "no published figure: the operations a second of ResNet-50 in B-Caffe"


class Net:
    """Layers in the order of the forward pass, and the shape of what flows between them."""

    def __init__(self, channels, size):
        self.channels, self.height, self.width = channels, size, size
        self.layers = []

    def add(self, name, kind, tensors, forward, times=2.0, more=0.0):
        """`forward`: its operations for one sample; `more`: of what has no parameters, backward."""
        backward = forward * (times if self.layers else times - 1.0) + more
        self.layers.append({"name": name, "kind": kind, "tensors": tensors, "forward": forward,
                            "backward": backward})

    def pool(self, kernel, stride, pad=0, ceil=False):
        def out(size):
            whole, rest = divmod(size + 2 * pad - kernel, stride)
            return whole + 1 + (1 if ceil and rest else 0)
        self.height, self.width = out(self.height), out(self.width)

    def conv(self, name, channels, kernel, stride=1, pad=None, bias=False, norm=None):
        kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        ph, pw = pad if isinstance(pad, tuple) else (pad, pad) if pad is not None else (kh // 2, kw // 2)
        self.height = (self.height + 2 * ph - kh) // stride + 1
        self.width = (self.width + 2 * pw - kw) // stride + 1
        weights = channels * self.channels * kh * kw
        pixels = self.height * self.width
        self.add(name, "conv", [weights] + [channels] * bias,
                 2.0 * weights * pixels + channels * pixels * bias)
        self.channels = channels
        if norm:
            self.norm(norm)

    def norm(self, name):
        self.add(name, "norm", [self.channels] * 2, 4.0 * self.channels * self.height * self.width)

    def fc(self, name, inputs, outputs):
        self.add(name, "fc", [inputs * outputs, outputs], 2.0 * inputs * outputs + outputs)

    def shape(self):
        return self.channels, self.height, self.width

    def at(self, shape):
        self.channels, self.height, self.width = shape


# ---- GoogLeNet ----

GOOGLENET = [  # 1x1, 3x3 reduce and 3x3, 5x5 reduce and 5x5, pool projection; what comes before
    ("3a", 64, 96, 128, 16, 32, 32, None), ("3b", 128, 128, 192, 32, 96, 64, None),
    ("4a", 192, 96, 208, 16, 48, 64, "pool"), ("4b", 160, 112, 224, 24, 64, 64, "aux1"),
    ("4c", 128, 128, 256, 24, 64, 64, None), ("4d", 112, 144, 288, 32, 64, 64, None),
    ("4e", 256, 160, 320, 32, 128, 128, "aux2"), ("5a", 256, 160, 320, 32, 128, 128, "pool"),
    ("5b", 384, 192, 384, 48, 128, 128, None)]


def googlenet(torchvision=False, aux=True):
    """Of the paper, as Caffe trains it, with biases; or torchvision's: batch normalisation in place of
    biases, and 3x3 convolutions where the paper has 5x5."""
    net = Net(3, 224)

    def conv(name, channels, kernel, stride=1):
        net.conv(name, channels, kernel, stride, bias=not torchvision,
                 norm=name + "/norm" if torchvision else None)

    def auxiliary(name):
        before = net.shape()
        net.height = net.width = 4
        conv(name + "/conv", 128, 1)
        net.fc(name + "/fc", 2048, 1024)
        net.fc(name + "/classifier", 1024, 1000)
        net.at(before)

    conv("conv1/7x7_s2", 64, 7, 2)
    net.pool(3, 2, ceil=True)
    conv("conv2/3x3_reduce", 64, 1)
    conv("conv2/3x3", 192, 3)
    net.pool(3, 2, ceil=True)
    for name, one, reduce3, three, reduce5, five, project, before in GOOGLENET:
        if before == "pool":
            net.pool(3, 2, ceil=True)
        elif before and aux:
            auxiliary("loss" + before[-1])
        name, shape = "inception_" + name, net.shape()
        conv(name + "/1x1", one, 1)
        net.at(shape)
        conv(name + "/3x3_reduce", reduce3, 1)
        conv(name + "/3x3", three, 3)
        net.at(shape)
        conv(name + "/5x5_reduce", reduce5, 1)
        conv(name + "/5x5", five, 3 if torchvision else 5)
        net.at(shape)
        conv(name + "/pool_proj", project, 1)
        net.channels = one + three + five + project
    net.fc("loss3/classifier", 1024, 1000)
    return net


# ---- ResNet ----

def resnet(blocks):
    net = Net(3, 224)
    net.conv("conv1", 64, 7, 2, norm="bn1")
    net.pool(3, 2, 1)
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            stride = 2 if stage and not block else 1
            shape = net.shape()
            net.conv(name + ".conv1", width, 1, norm=name + ".bn1")
            net.conv(name + ".conv2", width, 3, stride, norm=name + ".bn2")
            net.conv(name + ".conv3", 4 * width, 1, norm=name + ".bn3")
            if not block:
                after = net.shape()
                net.at(shape)
                net.conv(name + ".downsample.0", 4 * width, 1, stride, norm=name + ".downsample.1")
                assert net.shape() == after
    net.fc("fc", 2048, 1000)
    return net


# ---- VGG ----

def vgg16():
    net = Net(3, 224)
    for stage, (count, channels) in enumerate([(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)]):
        for i in range(count):
            net.conv(f"conv{stage + 1}_{i + 1}", channels, 3, bias=True)
        net.pool(2, 2)
    net.fc("fc6", 512 * 7 * 7, 4096)
    net.fc("fc7", 4096, 4096)
    net.fc("fc8", 4096, 1000)
    return net


# ---- Inception v3 ----

def inception_v3(aux=True):
    """torchvision's."""
    net = Net(3, 299)

    def conv(name, channels, kernel, stride=1, pad=None):
        net.conv(name + ".conv", channels, kernel, stride, pad, norm=name + ".bn")

    def branches(block, *chains, pooled=0):
        """Each chain begins where the block does; a step that is a list of steps splits the chain."""
        shape, channels = net.shape(), 0
        for chain in chains:
            net.at(shape)
            for step in chain:
                if isinstance(step, list):
                    before, together = net.shape(), 0
                    for name, *rest in step:
                        net.at(before)
                        conv(f"{block}.{name}", *rest)
                        together += net.channels
                    net.channels = together
                else:
                    conv(f"{block}.{step[0]}", *step[1:])
            channels += net.channels
        net.channels = channels + pooled

    conv("Conv2d_1a_3x3", 32, 3, 2, 0)
    conv("Conv2d_2a_3x3", 32, 3, 1, 0)
    conv("Conv2d_2b_3x3", 64, 3)
    net.pool(3, 2)
    conv("Conv2d_3b_1x1", 80, 1)
    conv("Conv2d_4a_3x3", 192, 3, 1, 0)
    net.pool(3, 2)
    for block, project in [("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)]:
        branches(block, [("branch1x1", 64, 1)],
                 [("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5)],
                 [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)],
                 [("branch_pool", project, 1)])
    branches("Mixed_6a", [("branch3x3", 384, 3, 2, 0)],
             [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3, 2, 0)],
             pooled=288)
    for block, c in [("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)]:
        branches(block, [("branch1x1", 192, 1)],
                 [("branch7x7_1", c, 1), ("branch7x7_2", c, (1, 7)), ("branch7x7_3", 192, (7, 1))],
                 [("branch7x7dbl_1", c, 1), ("branch7x7dbl_2", c, (7, 1)), ("branch7x7dbl_3", c, (1, 7)),
                  ("branch7x7dbl_4", c, (7, 1)), ("branch7x7dbl_5", 192, (1, 7))],
                 [("branch_pool", 192, 1)])
    if aux:
        shape = net.shape()
        net.pool(5, 3)
        conv("AuxLogits.conv0", 128, 1)
        conv("AuxLogits.conv1", 768, 5, 1, 0)
        net.fc("AuxLogits.fc", 768, 1000)
        net.at(shape)
    branches("Mixed_7a", [("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3, 2, 0)],
             [("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, (1, 7)), ("branch7x7x3_3", 192, (7, 1)),
              ("branch7x7x3_4", 192, 3, 2, 0)], pooled=768)
    for block in ("Mixed_7b", "Mixed_7c"):
        branches(block, [("branch1x1", 320, 1)],
                 [("branch3x3_1", 384, 1), [("branch3x3_2a", 384, (1, 3)), ("branch3x3_2b", 384, (3, 1))]],
                 [("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3),
                  [("branch3x3dbl_3a", 384, (1, 3)), ("branch3x3dbl_3b", 384, (3, 1))]],
                 [("branch_pool", 192, 1)])
    net.fc("fc", 2048, 1000)
    return net


# ---- BERT ----

def bert_base(tokens=128):
    """Without the heads of any task."""
    net, hidden, inner = Net(0, 0), 768, 3072
    for name, rows in [("word", 30522), ("position", 512), ("token_type", 2)]:
        net.add(f"embeddings.{name}", "embedding", [rows * hidden], hidden * tokens, times=1.0)

    def norm(name):
        net.add(name, "norm", [hidden] * 2, 4.0 * hidden * tokens)

    def fc(name, inputs, outputs, rows=tokens, more=0.0):
        net.add(name, "fc", [inputs * outputs, outputs], (2.0 * inputs * outputs + outputs) * rows,
                more=more)

    norm("embeddings.norm")
    for i in range(12):
        layer = f"layer.{i}."
        fc(layer + "query", hidden, hidden)
        fc(layer + "key", hidden, hidden)
        # Scores and weighted sums, without parameters, come before it in the backward pass.
        fc(layer + "value", hidden, hidden, more=2 * 2 * 2.0 * tokens * tokens * hidden)
        fc(layer + "attention.output", hidden, hidden)
        norm(layer + "attention.norm")
        fc(layer + "intermediate", hidden, inner)
        fc(layer + "output", inner, hidden)
        norm(layer + "output.norm")
    fc("pooler", hidden, hidden, rows=1)
    return net


# ---- tables ----

NETWORKS = [
    # file, name, network, total, batch, samples a second, where that is from, architecture
    ("googlenet", "GoogLeNet", googlenet, 13378280, 64, 81.68, B_CAFFE,
     "Szegedy et al., Going deeper with convolutions (CVPR 2015), Table 1, with both auxiliary classifiers "
     "and biases, as Caffe's bvlc_googlenet trains it"),
    ("googlenet-bn", "GoogLeNet (torchvision)", lambda: googlenet(True), 13004888, 64, 81.68, B_CAFFE,
     "torchvision.models.googlenet with both auxiliary classifiers: batch normalisation for biases, 3x3 for "
     "5x5"),
    ("resnet50", "ResNet-50", lambda: resnet([3, 4, 6, 3]), 25557032, 32, 76.85 / 2, B_CAFFE,
     "He et al., Deep residual learning for image recognition (CVPR 2016), Table 1, stride in the 3x3 "
     "convolution as torchvision has it"),
    ("resnet101", "ResNet-101", lambda: resnet([3, 4, 23, 3]), 44549160, 32, None, RATE,
     "He et al., Deep residual learning for image recognition (CVPR 2016), Table 1"),
    ("resnet152", "ResNet-152", lambda: resnet([3, 8, 36, 3]), 60192808, 32, 20.0, TENSORFLOW,
     "He et al., Deep residual learning for image recognition (CVPR 2016), Table 1"),
    ("vgg16", "VGG-16", vgg16, 138357544, 32, 35.4, TENSORFLOW,
     "Simonyan and Zisserman, Very deep convolutional networks (ICLR 2015), Table 1, column D"),
    ("inception-v3", "Inception-v3", inception_v3, 27161264, 32, 29.3, TENSORFLOW,
     "Szegedy et al., Rethinking the Inception architecture (CVPR 2016), as torchvision.models.inception_v3 "
     "with its auxiliary classifier"),
    ("bert-base", "BERT-base, uncased", bert_base, 109482240, 8, None, RATE,
     "Devlin et al., BERT (NAACL 2019), without task heads, 128 tokens a sample"),
]


def operations(net):
    return sum(layer["forward"] + layer["backward"] for layer in net.layers)


def table(name, make, total, batch, rate, rate_source, source):
    net = make()
    elements = sum(sum(layer["tensors"]) for layer in net.layers)
    assert elements == total, f"{name}: {elements} parameters, expected {total}"
    if rate is None:
        like = resnet([3, 4, 6, 3])
        rate = (76.85 / 2) * operations(like) / operations(net)
    iteration_us = 1e6 * batch / rate
    backward = sum(layer["backward"] for layer in net.layers)
    layers, done = [], 0.0
    for layer in reversed(net.layers):
        done += layer["backward"]
        layers.append({"name": layer["name"], "kind": layer["kind"], "tensors": layer["tensors"],
                       "elements": sum(layer["tensors"]),
                       "ready_us": round(PARTS_BACKWARD * iteration_us * done / backward, 1)})
    return {"name": name, "source": source,
            "ready": f"estimated: shares of operations of a backward pass that is two thirds of an "
                     f"iteration at {rate:.4g} samples a second; {rate_source}",
            "device": "one GPU of a Tesla K80", "batch": batch, "elements": elements,
            "iteration_us": round(iteration_us, 1),
            "forward_us": round((1 - PARTS_BACKWARD) * iteration_us, 1),
            "operations": round(operations(net) * batch), "layers": layers}


def text(made):
    """As JSON with a line a layer."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in made.items()
             if key != "layers"]
    rows = ["    " + json.dumps(layer) for layer in made["layers"]]
    return "{\n" + "\n".join(lines) + '\n  "layers": [\n' + ",\n".join(rows) + "\n  ]\n}\n"


def main(words):
    check = words[:1] == ["--check"]
    folder = words[1 if check else 0]
    for file, *rest in NETWORKS:
        path = os.path.join(folder, file + ".json")
        made = text(table(*rest))
        if not check:
            with open(path, "w", encoding="utf-8") as out:
                out.write(made)
        elif open(path, encoding="utf-8").read() != made:
            sys.exit(f"{path}: not what tools/scripts/layer_tables.py makes")
        print(f"{file}: {made.count('ready_us')} layers")
    # What torchvision counts without auxiliary classifiers.
    for net, total in [(inception_v3(aux=False), 23834568), (googlenet(True, aux=False), 6624904),
                       (googlenet(aux=False), 6998552)]:
        assert sum(sum(layer["tensors"]) for layer in net.layers) == total


if __name__ == "__main__":
    main(sys.argv[1:])
