// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/winograd/micro_kernel.h"

#include <cairn/error.h>
#include <xbyak/xbyak.h>

namespace cairn::cpu::winograd {
namespace {

enum class Depth { channels, tiles };

// Writes all kernels into one piece of memory, which is writable first and executable after.
class Generator : public Xbyak::CodeGenerator {
 public:
  explicit Generator(int lanes)
      : Xbyak::CodeGenerator(size_t(lanes) << 13, Xbyak::DontSetProtectRWE),
        lanes_(lanes),
        bytes_(lanes * 4) {
    // AVX2 has 16 registers: 6 × 2 sums, 2 vectors, 1 number. AVX-512 has 32.
    kernels_.max_rows = lanes == 16 ? 14 : 6;
    kernels_.tile_rows = lanes / 2;
    for (int vectors : {1, 2}) {
      for (int rows = 1; rows <= kernels_.max_rows; ++rows)
        kernels_.products[vectors - 1][rows - 1] =
            generate<Products>(Depth::channels, rows, vectors, false);
      for (bool add : {false, true})
        kernels_.tile_products[vectors - 1][add] =
            generate<TileProducts>(Depth::tiles, kernels_.tile_rows, vectors, add);
    }
    setProtectModeRE();
  }
  const MicroKernels& kernels() const { return kernels_; }

 private:
  Xbyak::Xmm vector_register(int i) const {
    if (lanes_ == 16) return Xbyak::Zmm(i);
    return Xbyak::Ymm(i);
  }

  template <class Function>
  Function generate(Depth depth, int rows, int vectors, bool accumulate) {
    align(64);
    const auto start = getCurr<Function>();
    // Arguments as the System V convention passes them.
    const auto &numbers_at = rdi, &vectors_at = rsi, &sums_at = rdx, &blocks = rcx, &stride = r8,
               &next = r9;
    const bool channels = depth == Depth::channels;
    const auto sum = [&](int row, int v) { return vector_register(row * vectors + v); };
    const auto vector = [&](int v) { return vector_register(rows * vectors + v); };
    const auto number = vector_register((rows + 1) * vectors);
    const auto strided = [&](const Xbyak::Reg64& at, int v, int offset) {
      return v ? ptr[at + stride + offset] : ptr[at + offset];
    };
    const auto sum_at = [&](int row, int v) {
      return channels ? strided(sums_at, v, row * bytes_)
                      : ptr[sums_at + (row * vectors + v) * bytes_];
    };

    for (int row = 0; row < rows; ++row)
      for (int v = 0; v < vectors; ++v) vxorps(sum(row, v), sum(row, v), sum(row, v));
    Xbyak::Label loop;
    align(32);
    L(loop);
    for (int d = 0; d < lanes_; ++d) {
      for (int v = 0; v < vectors; ++v)
        vmovups(vector(v), channels ? ptr[vectors_at + (d * vectors + v) * bytes_]
                                    : strided(vectors_at, v, d * bytes_));
      for (int row = 0; row < rows; ++row) {
        vbroadcastss(number,
                     ptr[numbers_at + (channels ? row * bytes_ + d * 4 : d * bytes_ + row * 4)]);
        for (int v = 0; v < vectors; ++v) vfmadd231ps(sum(row, v), vector(v), number);
      }
      const int read = lanes_ * vectors * bytes_;  // of u, in this pass of the loop
      if (channels && d * 64 < read / 4) prefetcht0(ptr[next + d * 64]);
    }
    if (channels) {
      add(numbers_at, stride);
      add(vectors_at, lanes_ * vectors * bytes_);
      add(next, lanes_ * vectors * bytes_ / 4);
    } else {
      add(numbers_at, lanes_ * bytes_);
      add(vectors_at, lanes_ * bytes_);
    }
    dec(blocks);
    jnz(loop, T_NEAR);
    for (int row = 0; row < rows; ++row)
      for (int v = 0; v < vectors; ++v) {
        // What is there comes last: a sum of sums of blocks has a smaller error than one long sum.
        if (accumulate) vaddps(sum(row, v), sum(row, v), sum_at(row, v));
        vmovups(sum_at(row, v), sum(row, v));
      }
    vzeroupper();
    ret();
    return start;
  }

  int lanes_, bytes_;  // of a vector
  MicroKernels kernels_ = {};
};

}  // namespace

const MicroKernels& micro_kernels(int lanes) {
  if (lanes == 16) {
    static const Generator generator(16);
    return generator.kernels();
  }
  CAIRN_CHECK(lanes == 8, "vectors of 8 or 16 lanes");
  static const Generator generator(8);
  return generator.kernels();
}

}  // namespace cairn::cpu::winograd
