#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/train.py for ResNet-50 at 224 pixels, which is its default; the same options."""
import train

if __name__ == "__main__":
    train.main()
