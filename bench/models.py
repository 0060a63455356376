# SPDX-License-Identifier: Apache-2.0
"""The models of the benchmarks in PyTorch: torchvision's, and the bodies of YOLOv5s and YOLOv7 as src/models/yolo.cpp has them."""
import torch
import torchvision
from torch import nn


class Conv(nn.Module):
    def __init__(self, i, o, k=1, s=1, p=None):
        super().__init__()
        self.conv = nn.Conv2d(i, o, k, s, k // 2 if p is None else p, bias=False)
        self.bn = nn.BatchNorm2d(o, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return nn.functional.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, c, shortcut):
        super().__init__()
        self.cv1, self.cv2, self.adds_input = Conv(c, c), Conv(c, c, 3), shortcut

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.adds_input else y


class C3(nn.Module):
    def __init__(self, i, o, count, shortcut=True):
        super().__init__()
        self.cv1, self.cv2, self.cv3 = Conv(i, o // 2), Conv(i, o // 2), Conv(o, o)
        self.m = nn.Sequential(*(Bottleneck(o // 2, shortcut) for _ in range(count)))

    def forward(self, x):
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


def pool(x, k):
    return nn.functional.max_pool2d(x, k, 1, k // 2)


class SPPF(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.cv1, self.cv2 = Conv(i, i // 2), Conv(2 * i, o)

    def forward(self, x):
        a = self.cv1(x)
        b = pool(a, 5)
        c = pool(b, 5)
        return self.cv2(torch.cat((a, b, c, pool(c, 5)), 1))


class SPPCSPC(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.cv1, self.cv2, self.cv3, self.cv4 = Conv(i, o), Conv(i, o), Conv(o, o, 3), Conv(o, o)
        self.cv5, self.cv6, self.cv7 = Conv(4 * o, o), Conv(o, o, 3), Conv(2 * o, o)

    def forward(self, x):
        a = self.cv4(self.cv3(self.cv1(x)))
        b = self.cv5(torch.cat((a, pool(a, 5), pool(a, 9), pool(a, 13)), 1))
        return self.cv7(torch.cat((self.cv6(b), self.cv2(x)), 1))


class RepConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        branch = lambda k: nn.Sequential(nn.Conv2d(i, o, k, 1, k // 2, bias=False), nn.BatchNorm2d(o, eps=1e-3, momentum=0.03))
        self.rbr_dense, self.rbr_1x1 = branch(3), branch(1)

    def forward(self, x):
        return nn.functional.silu(self.rbr_dense(x) + self.rbr_1x1(x))


class Join(nn.Module):
    def forward(self, *x):
        return torch.cat(x, 1)


class Body(nn.Module):
    """Numbered layers that each read earlier ones (-1: the one before), under a classifier over means."""

    def __init__(self):
        super().__init__()
        self.model, self.sources, self.channels = nn.ModuleList(), [], []

    def layer(self, sources, channels, module):
        self.sources.append([s % len(self.model) if self.model else -1 for s in sources])
        self.channels.append(channels)
        self.model.append(module)
        return len(self.model) - 1

    def add(self, kind, source, channels, *further):
        return self.layer([source], channels, kind(self.channels[source] if self.channels else 3, channels, *further))

    def upsample(self):
        return self.layer([-1], self.channels[-1], nn.Upsample(scale_factor=2, mode="nearest"))

    def join(self, sources):
        return self.layer(sources, sum(self.channels[s] for s in sources), Join())

    def finish(self, maps, classes):
        self.maps = maps
        self.fc = nn.Linear(sum(self.channels[m] for m in maps), classes)
        return self

    def forward(self, x):
        made = []
        for sources, module in zip(self.sources, self.model):
            made.append(module(*(x if s < 0 else made[s] for s in sources)))
        return self.fc(torch.cat([made[m].mean((2, 3)) for m in self.maps], 1))

    def elan(self, source, ways, chain, kept, out):
        source %= len(self.model)
        join = [self.add(Conv, source, ways)]
        join.insert(0, self.add(Conv, source, ways))
        for i in range(1, 5):
            made = self.add(Conv, -1, chain, 3)
            if i % kept == 0:
                join.insert(0, made)
        self.join(join)
        return self.add(Conv, -1, out)

    def halve(self, channels, besides=()):
        source = len(self.model) - 1
        self.layer([source], self.channels[source], nn.MaxPool2d(2, 2))
        pooled = self.add(Conv, -1, channels)
        self.add(Conv, source, channels)
        return self.join([self.add(Conv, -1, channels, 3, 2), pooled, *besides])


def yolov5s_body(classes):
    b = Body()
    b.add(Conv, -1, 32, 6, 2, 2), b.add(Conv, -1, 64, 3, 2), b.add(C3, -1, 64, 1), b.add(Conv, -1, 128, 3, 2)
    p3 = b.add(C3, -1, 128, 2)
    b.add(Conv, -1, 256, 3, 2)
    p4 = b.add(C3, -1, 256, 3)
    b.add(Conv, -1, 512, 3, 2), b.add(C3, -1, 512, 1), b.add(SPPF, -1, 512)
    top = b.add(Conv, -1, 256)
    b.upsample(), b.join([-1, p4]), b.add(C3, -1, 256, 1, False)
    middle = b.add(Conv, -1, 128)
    b.upsample(), b.join([-1, p3])
    small = b.add(C3, -1, 128, 1, False)
    b.add(Conv, -1, 128, 3, 2), b.join([-1, middle])
    medium = b.add(C3, -1, 256, 1, False)
    b.add(Conv, -1, 256, 3, 2), b.join([-1, top])
    return b.finish([small, medium, b.add(C3, -1, 512, 1, False)], classes)


def yolov7_body(classes):
    b = Body()
    b.add(Conv, -1, 32, 3), b.add(Conv, -1, 64, 3, 2), b.add(Conv, -1, 64, 3), b.add(Conv, -1, 128, 3, 2)
    b.elan(-1, 64, 64, 2, 256), b.halve(128)
    p3 = b.elan(-1, 128, 128, 2, 512)
    b.halve(256)
    p4 = b.elan(-1, 256, 256, 2, 1024)
    b.halve(512), b.elan(-1, 256, 256, 2, 1024)
    top = b.add(SPPCSPC, -1, 512)
    b.add(Conv, -1, 256)
    up = b.upsample()
    b.join([b.add(Conv, p4, 256), up])
    middle = b.elan(-1, 256, 128, 1, 256)
    b.add(Conv, -1, 128)
    up = b.upsample()
    b.join([b.add(Conv, p3, 128), up])
    small = b.elan(-1, 128, 64, 1, 128)
    b.halve(128, [middle])
    medium = b.elan(-1, 256, 128, 1, 256)
    b.halve(256, [top])
    large = b.elan(-1, 512, 256, 1, 512)
    return b.finish([b.add(RepConv, small, 256), b.add(RepConv, medium, 512), b.add(RepConv, large, 1024)], classes)


def make(name, classes=1000):
    own = {"yolov5s_body": yolov5s_body, "yolov7_body": yolov7_body}
    if name in own:
        return own[name](classes)
    return getattr(torchvision.models, name)(num_classes=classes, **({"dropout": 0.0} if "mobilenet" in name else {}))
