#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the build into a clean prefix, builds a program outside the tree on it, and runs that and the command.
#   install_test.sh BUILD_DIR SOURCE_DIR CMAKE
set -eu
build=$1 source=$2 cmake=$3
work=$build/install_test
rm -rf "$work"
"$cmake" --install "$build" --prefix "$work/prefix" >"$build/install_test.log"
"$cmake" -S "$source/tests/install/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >>"$build/install_test.log"
"$cmake" --build "$work/consumer" >>"$build/install_test.log"
"$work/consumer/consumer"
"$work/prefix/bin/cairn" --version
rm -rf "$work"
